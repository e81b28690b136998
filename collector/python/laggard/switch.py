"""The word that says what is recorded: TaskD's five words as two bits."""

from . import layout

WORDS = ("CommunicationOperator", "Step", "SaveCheckpoint", "FP", "DataLoader")


def initial(text):
    """Returns (word, complaint) for the value of LAGGARD_TRACE.

    on (the default) is everything, off nothing; else a list of the five words
    with commas. The four light kinds go together and are on whenever any word is.
    Communication is read as CommunicationOperator. A word that is none of them leaves
    everything on, and complaint says so.
    """
    both = layout.LIGHT_ON | layout.COMMUNICATION_ON
    value = (text or "on").strip()
    if value.lower() == "on":
        return both, None
    if value.lower() == "off":
        return 0, None
    given = [w.strip() for w in value.split(",") if w.strip()]
    unknown = [w for w in given if w not in WORDS and w != "Communication"]
    if unknown or not given:
        return both, "LAGGARD_TRACE=%s: %r is none of on, off, %s; everything is on" % (
            value, unknown[0] if unknown else value, ", ".join(WORDS))
    word = layout.LIGHT_ON
    if "CommunicationOperator" in given or "Communication" in given:
        word |= layout.COMMUNICATION_ON
    return word, None
