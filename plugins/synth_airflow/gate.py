"""The disclosure gate: a person sees the privacy certificate and decides whether the release is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from synth_airflow.operators import ReleaseOperator, log, runner
from synth_airflow.pages import in_airflow


class DisclosureGate(ReleaseOperator, ApprovalOperator):
    """Waits for a person if the spec asks for approval; the ledger keeps who decided what about which draft.

    A rejection skips `publish`. The step itself refuses to publish without an approval, so that no other way to run it
    leads around this gate.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(subject="Publish this release?", body="", **kwargs)

    def execute(self, context: Context) -> Any:
        """Show the certificate and wait."""
        from synth_core import steps

        address = self.address(context)
        asked = steps.ask_approval(address, runner=runner(context))
        if asked is None:
            raise AirflowSkipException("this release asks for no approval, or is published already")
        digest, certificate = asked
        context["ti"].xcom_push(key="draft", value=digest)
        release = Path(address).parent.name
        self.subject = f"Publish release {release}?"
        pages = in_airflow("release", name=release)
        self.body = f"{certificate}\n\n[Report, records and files of this release]({pages}) · draft {digest}"
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Record the decision in the ledger, then go on or skip what follows."""
        from synth_core import steps

        if "error" not in event:
            who = event.get("responded_by_user") or {}
            steps.decide(
                self.address(context),
                approved=event["chosen_options"] == [self.APPROVE],
                seen=context["ti"].xcom_pull(task_ids=self.task_id, key="draft"),
                runner=runner(context, actor=who.get("name") or who.get("id") or ""),
            )
            log.info("decided", options=event["chosen_options"], by=who.get("name"))
        return super().execute_complete(context, event)
