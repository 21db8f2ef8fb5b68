"""All claims by name."""

from collections.abc import Iterable, Mapping

from regard.claims.ablations import ABLATIONS
from regard.claims.exact import EXACT
from regard.claims.parts import Claim
from regard.claims.scores import SCORING
from regard.errors import unknown

CLAIMS: Mapping[str, Claim] = {claim.name: claim for claim in (*EXACT, *SCORING, *ABLATIONS)}


def claims_named(names: Iterable[str]) -> list[Claim]:
    """The claims with these names, in the order of CLAIMS; all claims if `names` is empty.

    Raises RecipeError for an unknown name.
    """
    wanted = list(names)
    for name in wanted:
        if name not in CLAIMS:
            raise unknown("claim", name, list(CLAIMS))
    return [claim for claim in CLAIMS.values() if not wanted or claim.name in wanted]
