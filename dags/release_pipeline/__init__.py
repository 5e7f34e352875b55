"""What the release DAGs are made of: operators for the steps, the disclosure gate, the order of the tasks."""
