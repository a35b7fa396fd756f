"""The trainers: one file each, listed without importing their libraries."""
