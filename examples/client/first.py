"""Submits three trainings at once, shows the output of one, and fetches what the best one has left."""

import asyncio
import sys
from pathlib import Path

from switchyard.client import AsyncYard, Rejected

TRAINER = Path(__file__).resolve().parent.parent / "python" / "train_mlp.py"


async def main(to: Path) -> None:
    yard = AsyncYard()
    try:
        jobs = await asyncio.gather(
            *(
                yard.submit(
                    [sys.executable, str(TRAINER)],
                    name="mlp-%d" % batch,
                    batch_size=batch,
                    training_set_size=400,
                    max_epochs=2,
                    labels={"example": "client"},
                )
                for batch in (16, 32, 64)
            )
        )
    except Rejected as problem:
        sys.exit(str(problem))
    async for line in yard.logs(jobs[0], follow=True):
        print(line)
    ended = await yard.wait(*jobs)
    for job in ended:
        print(job["spec"]["name"], job["state"], job.get("message", ""))
    results = await yard.results(ended[-1])
    for epoch in results.epochs:
        print("epoch", epoch["epochs_done"], epoch.get("metrics", {}))
    for file in results.files.get("files", []):
        if not file["path"].startswith("checkpoints/"):
            continue
        print(file["path"], file["size_bytes"])
        with open(to / Path(file["path"]).name, "wb") as out:
            async for piece in yard.fetch(ended[-1], file["path"]):
                out.write(piece)


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "results")
    folder.mkdir(exist_ok=True)
    asyncio.run(main(folder))
