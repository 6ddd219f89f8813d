"""The one error tree, named by what the caller can do about it.

``UndercroftError``
├── ``InvalidArgument``   change the request
├── ``NotFound``          name something that exists
├── ``Conflict``          somebody else holds or has changed it: retry or choose another name
├── ``NotReady``          a precondition is missing: do what the remedy says, then call again
├── ``Overloaded``        wait ``retry_after_s``, then call again
├── ``Unavailable``       a service that this call needs does not answer: retry
├── ``PermissionDenied``  ask for access
├── ``DataLoss``          stored data is damaged: repair
└── ``Unimplemented``     a later release does this

Every error says the cause and the next step and never a secret. ``services.core.grpc`` maps the tree to a gRPC status
with ``google.rpc.ErrorInfo`` in exactly one interceptor.
"""

from __future__ import annotations

from collections.abc import Mapping

DOMAIN = "undercroft"


class UndercroftError(Exception):
    """Something failed inside Undercroft.

    ``reason`` is a stable UPPER_SNAKE_CASE word that programs match on; ``remedy`` is the next step for a person.
    """

    reason = "INTERNAL"

    def __init__(
        self,
        message: str | None = None,
        *,
        remedy: str = "",
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.message = message or (type(self).__doc__ or "").splitlines()[0]
        self.remedy = remedy
        self.reason = reason or type(self).reason
        self.metadata = dict(metadata or {})
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class InvalidArgument(UndercroftError):
    """The request is not valid."""

    reason = "INVALID_ARGUMENT"


class NotFound(UndercroftError):
    """No such resource."""

    reason = "NOT_FOUND"


class Conflict(UndercroftError):
    """The resource is held or was changed by somebody else."""

    reason = "CONFLICT"


class NotReady(UndercroftError):
    """Something that this needs is not in place."""

    reason = "NOT_READY"


class Overloaded(UndercroftError):
    """The service has more work than it can queue."""

    reason = "OVERLOADED"

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after_s: float = 1.0,
        remedy: str = "",
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy, reason=reason, metadata=metadata)
        self.retry_after_s = retry_after_s


class Unavailable(UndercroftError):
    """A service that this call needs does not answer.

    ``waited`` says that this was waited for already: a client is not to ask again by itself.
    """

    reason = "UNAVAILABLE"

    def __init__(
        self,
        message: str | None = None,
        *,
        waited: bool = False,
        remedy: str = "",
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy, reason=reason, metadata=metadata)
        self.waited = waited


class PermissionDenied(UndercroftError):
    """The caller may not do this."""

    reason = "PERMISSION_DENIED"


class DataLoss(UndercroftError):
    """Stored data is damaged."""

    reason = "DATA_LOSS"


class Unimplemented(UndercroftError):
    """This release does not do that yet."""

    reason = "UNIMPLEMENTED"
