"""Parts of the data loader: collating, fetching, worker processes and the messages between them."""

from flambeau.utils.data._utils import collate, fetch
from flambeau.utils.data._utils.transport import Closed

MP_STATUS_CHECK_INTERVAL = 5.0
__all__ = ["collate", "fetch", "Closed", "MP_STATUS_CHECK_INTERVAL"]
