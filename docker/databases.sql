-- Airflow and the ledger have databases of their own: tasks can reach the second and not the first.
CREATE DATABASE ledger;
