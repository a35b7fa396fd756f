/* Marks answers that a model proposed, until the annotator has said something about them. */
(function () {
  'use strict';
  const base = document.currentScript.src.split('/plugin-static/')[0];
  const WORD = 'suggested';
  const ABOUT = 'A model proposed this answer. It is saved as yours when you go on.';

  function choices(schema) {
    return [...document.querySelectorAll('input.annotation-input[schema]')]
      .filter((input) => input.getAttribute('schema') === schema && /^(radio|checkbox)$/.test(input.type));
  }

  function mark(schema, labels) {
    const marks = [];
    for (const input of choices(schema)) {
      const name = input.getAttribute('label_name') || input.value;
      if (!input.checked || !labels.includes(name)) continue;
      const sign = document.createElement('span');
      sign.className = 'potato-training-mark';
      sign.textContent = WORD;
      sign.title = ABOUT;
      (document.querySelector(`label[for="${CSS.escape(input.id)}"]`) || input.parentElement).append(sign);
      marks.push(sign);
    }
    const clear = () => marks.splice(0).forEach((sign) => sign.remove());
    for (const input of choices(schema)) input.addEventListener('change', clear, { once: true });
  }

  async function begin() {
    const item = document.getElementById('instance_id');
    // where nothing is chosen there is nothing to mark
    if (!item || !item.value || !document.querySelector('input.annotation-input[schema]:checked')) return;
    try {
      const answer = await fetch(`${base}/training/prelabels?instance_id=${encodeURIComponent(item.value)}`);
      if (!answer.ok || !/json/.test(answer.headers.get('Content-Type') || '')) return;
      for (const [schema, labels] of Object.entries(await answer.json())) mark(schema, [].concat(labels));
    } catch (error) {
      // the page works without marks
    }
  }

  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', begin);
  else begin();
})();
