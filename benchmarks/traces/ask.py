"""Asks HolisticTraceAnalysis what it says of a folder of traces: who lags, and how the time was spent."""

import logging
import sys

from hta.trace_analysis import TraceAnalysis


def ask(question, answer):
    try:
        print("%s: %s" % (question, answer()))
    except Exception as error:  # it fails on what it was not made for; that is an answer as well
        print("%s: %s: %s" % (question, type(error).__name__, error))


def main():
    logging.disable(logging.CRITICAL)
    try:
        analysis = TraceAnalysis(trace_dir=sys.argv[1])
    except Exception as error:
        print("it doesn't read them: %s: %s" % (type(error).__name__, error))
        return
    ask("stragglers", analysis.get_potential_stragglers)
    ask("time", lambda: analysis.get_temporal_breakdown(visualize=False).round(1).to_dict("records"))
    ask("overlap", lambda: analysis.get_comm_comp_overlap(visualize=False).round(1).to_dict("records"))


if __name__ == "__main__":
    main()
