#!/usr/bin/env python3
"""A search service of the Search-R1 kind over given vectors: FastAPI, one uvicorn worker, a def endpoint, faiss' flat index."""
import argparse
import json

import faiss
import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class Request(BaseModel):
    vectors: list[list[float]]
    topk: int | None = None
    return_scores: bool = False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--vectors", required=True, help=".npy file, a row for each passage")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    faiss.omp_set_num_threads(args.threads)
    vectors = np.load(args.vectors)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    del vectors
    with open(args.corpus, encoding="utf-8") as file:
        passages = [json.loads(line) for line in file]
    app = FastAPI()

    @app.post("/retrieve")
    def retrieve(request: Request):
        scores, rows = index.search(np.asarray(request.vectors, dtype=np.float32), request.topk or 3)
        if not request.return_scores:
            return {"result": [[passages[row] for row in found] for found in rows]}
        return {"result": [[{"document": passages[row], "score": float(score)} for row, score in zip(*found)] for found in zip(rows, scores)]}

    uvicorn.run(app, host="127.0.0.1", port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
