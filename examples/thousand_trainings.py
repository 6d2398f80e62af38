"""A thousand trainings on built-in data: 4 sets of tasks, 5 widths, 2 weightings, 25 seeds."""

from itertools import product

from mtlens import Splits, Training, read_tasks, train

tasks = Splits(seed=0).assign(read_tasks("example"))
sets = [*([name] for name in tasks.names), list(tasks.names)]
grid = product(sets, [2, 5, 10, 20, 50], ["equal", "uncertainty"], range(25))
trainings = [Training(tasks.subset(s), "relu", c, weighting=w, seed=seed, lr=0.01, epochs=10) for s, c, w, seed in grid]
results = train(trainings, keep="scores")
best = max((r for r in results if r.ok), key=lambda r: sum(r.scores["valid"].values()) / len(r.scores["valid"]))
print(f"{len(results)} trainings, {sum(r.ok for r in results)} finished; best: {best.training} {best.scores['test']}")
