"""Calls a running A2A server over gRPC with nothing but what its reflection says, as grpcurl does.

usage: reflection.py HOST:PORT

The server must offer the `conformance` agent and have reflection on. Every step prints `ok` or
`FAIL`; the exit code is 1 if any step failed.
"""

import sys
from uuid import uuid4

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

TIMEOUT = 30.0


class Tool:
    def __init__(self, channel):
        self.channel = channel
        self.database = ProtoReflectionDescriptorDatabase(channel)
        self.pool = DescriptorPool(self.database)

    def call(self, service, method, request, **metadata):
        """One call; request and answers as their JSON."""
        described = self.pool.FindServiceByName(service).methods_by_name[method]
        message = json_format.ParseDict(request, GetMessageClass(described.input_type)())
        answer = GetMessageClass(described.output_type)
        kind = self.channel.unary_stream if described.server_streaming else self.channel.unary_unary
        path = f"/{service}/{method}"
        send = kind(path, type(message).SerializeToString, answer.FromString)
        metadata = [(key.replace("_", "-"), value) for key, value in metadata.items()]
        answered = send(message, timeout=TIMEOUT, metadata=metadata)
        answers = answered if described.server_streaming else [answered]
        return [json_format.MessageToDict(one) for one in answers]


def services(tool):
    found = tool.database.get_services()
    assert {"lf.a2a.v1.A2AService", "a2a.v1.A2AService"} <= set(found), found


def send(tool):
    message = {
        "messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "tck-complete-task"}],
    }
    service = "lf.a2a.v1.A2AService"
    [answer] = tool.call(service, "SendMessage", {"message": message}, a2a_version="1.0")
    assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED", answer


def stream(tool):
    text = "tck-stream-chunked chunks=3 size=4 delay_ms=1"
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "content": [{"text": text}]}
    events = tool.call("a2a.v1.A2AService", "SendStreamingMessage", {"message": message})
    assert "task" in events[0] and events[-1]["statusUpdate"]["final"], events
    assert sum("artifactUpdate" in event for event in events) == 3, events


def main(address):
    passed = failed = 0
    with grpc.insecure_channel(address) as channel:
        tool = Tool(channel)
        for step in [services, send, stream]:
            try:
                step(tool)
                passed += 1
                print(f"ok {step.__name__}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAIL {step.__name__}: {error!r}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
