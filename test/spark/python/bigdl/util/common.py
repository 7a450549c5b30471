"""The stand-in of bigdl.util.common."""

from pyspark import SparkContext  # noqa: F401


def create_spark_conf():
    return None


def init_engine():
    pass


def redire_spark_logs():
    pass


def show_bigdl_info_logs():
    pass
