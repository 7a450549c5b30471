"""The TensorFlow example of the guide to kubernetesdlprofile, in a form that can be resumed.

Corrected against the guide's listing:
- the data is read from mnist.npz in /data, or in the folder that SWITCHYARD_DATASETS_DIR stands for; nothing is downloaded;
- every epoch is saved, not only the best one: a job resumed from an older epoch would train too little;
- the weights' file has the suffix that Keras 3 asks for, and is loaded only where it exists;
- this file's own name must not hide the package: its folder is taken off the import path.
The order of the calls is the guide's: start_epoch, then measure after each step, then end_epoch.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != HERE]

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from kubernetesdlprofile import kubeprofiler  # noqa: E402


class KubeProfilerCallback(tf.keras.callbacks.Callback):
    def __init__(self, prof):
        super().__init__()
        self.prof = prof

    def on_epoch_begin(self, epoch, logs=None):
        self.prof.start_epoch()

    def on_train_batch_end(self, batch, logs=None):
        self.prof.measure()

    def on_epoch_end(self, epoch, logs=None):
        self.prof.end_epoch()


def network():
    return tf.keras.models.Sequential(
        [
            tf.keras.layers.Flatten(input_shape=(28, 28)),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dropout(0.2),
            tf.keras.layers.Dense(10),
        ]
    )


def main():
    with np.load(os.path.join(os.environ.get("SWITCHYARD_DATASETS_DIR", "/data"), "mnist.npz")) as data:
        x_train, y_train, x_test, y_test = (data[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    x_train, x_test = x_train / 255.0, x_test / 255.0
    prof = kubeprofiler.KubeProfiler()
    with tf.distribute.MirroredStrategy().scope():  # Reads TF_CONFIG.
        model = network()
        model.compile(
            optimizer="adam",
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    weights = os.path.join(prof.root_dir, "tf_ckpt.weights.h5")
    initial_epoch = 0
    if prof.RESTARTED and os.path.exists(weights):
        model.load_weights(weights)
        initial_epoch = prof.EPOCHS_DONE
    model.fit(
        x_train,
        y_train,
        batch_size=prof.BATCH_SIZE,
        epochs=prof.EPOCHS,
        initial_epoch=initial_epoch,
        callbacks=[
            tf.keras.callbacks.ModelCheckpoint(filepath=weights, save_weights_only=True),
            KubeProfilerCallback(prof),
        ],
    )
    model.evaluate(x_test, y_test, verbose=2)


if __name__ == "__main__":
    main()
