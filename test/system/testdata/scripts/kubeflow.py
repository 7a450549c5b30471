"""Reports its epochs by the status protocol of the Kubeflow trainer, as transformers' KubeflowCallback does."""

import json
import os
import urllib.request

token = open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read().strip()
for epoch in range(1, 4):
    metrics = {"loss": 1 / epoch, "current_step": 10 * epoch, "current_epoch": float(epoch)}
    body = {"trainerStatus": {"metrics": [{"name": name, "value": str(value)} for name, value in metrics.items()]}}
    urllib.request.urlopen(urllib.request.Request(
        os.environ["KUBEFLOW_TRAINER_SERVER_URL"], data=json.dumps(body).encode(), method="POST",
        headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"}), timeout=60)
