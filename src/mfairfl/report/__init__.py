"""What people read: the report of a run, the model card, the audit of any model's decisions."""
