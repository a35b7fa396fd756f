"""Every name of Potato that the plugin uses. Private ones among them may change with any release, so all are
looked up before anything is touched, and a release that was not tried is left alone.

Potato is GPL-licensed: it is looked up in the process that it is running in, and never otherwise.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

#: The releases (major, minor) whose names are known to mean what is thought here.
KNOWN = ((2, 12),)

_CONFIG = "potato.server_utils.config_module"
_ITEMS = "potato.item_state_management"
_MANAGER = "potato.training.manager"
_ROUTES = "potato.training.routes"
_WRITEBACK = "potato.training.writeback"
_RBAC = "potato.server_utils.rbac"
_ORIGIN = "potato.server_utils.origin_check"
_USERS = "potato.user_state_management"

_NEEDED = {
    _CONFIG: ("KNOWN_CONFIG_KEYS",),
    _ITEMS: (
        "get_item_state_manager", "ItemStateManager.set_prediction", "ItemStateManager.clear_prediction",
        "ItemStateManager.find_item", "ItemStateManager.has_item", "ItemStateManager.iter_items",
        "ItemStateManager.item_count", "Item.get_data",
    ),
    _USERS: ("get_user_state_manager", "UserStateManager.get_user_state", "UserState.get_label_annotations",
             "InMemoryUserState.get_assigned_instance_ids"),
    _MANAGER: ("init_training_manager", "get_training_manager", "_TRAINING_MANAGER"),
    _ROUTES: ("training_bp",),
    _WRITEBACK: ("rehydrate_predictions",),
    _RBAC: ("get_rbac_manager", "RBACManager.check", "RBACManager.has_valid_admin_key",
            "RBACManager.has_permission", "Permission.VIEW_ADMIN_DASHBOARD"),
    _ORIGIN: ("is_same_origin",),
}


class Unknown(Exception):
    """This Potato is not one that the plugin knows; ``str`` says what is different."""


def check() -> None:
    """Raises Unknown unless Potato is of a known release and has every name."""
    version = str(getattr(importlib.import_module("potato"), "__version__", ""))
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) not in KNOWN:
        known = ", ".join(f"{major}.{minor}" for major, minor in KNOWN)
        raise Unknown(f"Potato {version or 'of an unknown version'} is not a release that it knows ({known})")
    for module, names in _NEEDED.items():
        try:
            owner = importlib.import_module(module)
        except ImportError as error:
            raise Unknown(f"Potato {version} has no {module} ({error})") from None
        for name in names:
            value: Any = owner
            for part in name.split("."):
                if not hasattr(value, part):
                    raise Unknown(f"Potato {version} has no {module}.{name}")
                value = getattr(value, part)
    if not isinstance(known_keys().get("model_training"), dict):
        raise Unknown(f"Potato {version} knows the keys of model_training in another way")


# --- what is changed -----------------------------------------------------------------------------------


def known_keys() -> dict[str, Any]:
    """Potato's table of config keys: name -> None (anything below is fine), a set of names, or a table."""
    return importlib.import_module(_CONFIG).KNOWN_CONFIG_KEYS


def replace(*, init_manager: Any, blueprint: Any, rehydrate: Any) -> None:
    """Puts ours in the place of three names that Potato imports at the moment when it uses them."""
    importlib.import_module(_MANAGER).init_training_manager = init_manager  # type: ignore[attr-defined]
    importlib.import_module(_ROUTES).training_bp = blueprint  # type: ignore[attr-defined]
    importlib.import_module(_WRITEBACK).rehydrate_predictions = rehydrate  # type: ignore[attr-defined]


def set_manager(manager: Any) -> None:
    """What Potato's ``get_training_manager`` gives from now on."""
    importlib.import_module(_MANAGER)._TRAINING_MANAGER = manager  # type: ignore[attr-defined]


# --- what is asked ---------------------------------------------------------------------------------------


def items() -> Any:
    """The live items."""
    return importlib.import_module(_ITEMS).get_item_state_manager()


def user_state(name: str) -> Any:
    """What an annotator has said so far, or None."""
    return importlib.import_module(_USERS).get_user_state_manager().get_user_state(name)


def roles() -> Any:
    return importlib.import_module(_RBAC).get_rbac_manager()


def admin_permission() -> Any:
    return importlib.import_module(_RBAC).Permission.VIEW_ADMIN_DASHBOARD


def is_same_origin() -> bool:
    return bool(importlib.import_module(_ORIGIN).is_same_origin())


def check_items() -> set[str]:
    """Ids of items that only check an annotator (attention checks, gold standards)."""
    try:
        manager = importlib.import_module("potato.quality_control").get_quality_control_manager()
        return {str(one) for table in (manager.attention_expected, manager.gold_labels) for one in table}
    except (ImportError, AttributeError, TypeError):
        return set()
