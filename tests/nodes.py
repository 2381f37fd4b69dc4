"""Runs on a cluster of two nodes, of which one is lost and another joins. Prints what it found.

A program of its own, because a process can only be connected to one Ray cluster.
"""

from __future__ import annotations

import json
import logging
import sys

import faulty
import ray
from ray.cluster_utils import Cluster

from gifair_ray.actors.cluster import cluster

ROUNDS = 40


def main(policies):
    machines = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20},
    )
    other = _join(machines)
    ray.init(address=machines.address, logging_level=logging.ERROR, log_to_driver=False)
    with cluster(workers=2) as actors:
        for policy in policies:
            case = (policy, "GIFAIR-Per")
            session = actors.start(faulty.scenario(*case, ROUNDS), None)
            for _ in range(3):
                session.advance(0.0)
            machines.remove_node(other, allow_graceful=False)
            while not session.advance(0.05).finished:
                pass
            digest = session.finish().digest
            other = _join(machines)  # where the actor that takes the lost one's place goes
            found = {"policy": policy, "digest": digest, "servers lost": session.losses}
            print(json.dumps(found), flush=True)
        last = actors.start(faulty.scenario("sync", "AFL"), None)
        while not last.advance(0.05).finished:
            pass
        print(json.dumps({"joined": last.finish().digest}), flush=True)
    ray.shutdown()
    machines.shutdown()


def _join(machines):
    node = machines.add_node(num_cpus=1, object_store_memory=80 << 20)
    machines.wait_for_nodes()
    return node


if __name__ == "__main__":
    main(sys.argv[1:])
