"""A reward of one's own: a line of JSON in, a line of JSON out, in the same order. Ends with its input."""
import json, sys

for line in sys.stdin:
    a = json.loads(line)
    score = a["em"]
    if a["answer"] is not None and score == 0:
        score = 0.3 * a["f1"]                      # half right is better than wrong
    score -= 0.02 * max(0, len(a["turns"]) - 4)    # many turns cost
    print(json.dumps({"score": score}), flush=True)
