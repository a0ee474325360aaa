import { assertEquals } from "@std/assert";
import { message } from "../../tests/support/builders/protobuf_objects.ts";
import type { KindSpec } from "../api/kind.ts";
import { ENDPOINT_SLICE } from "../api/kinds/endpoint_slice.ts";
import { LEASE } from "../api/kinds/lease.ts";
import { NETWORK_POLICY } from "../api/kinds/network_policy.ts";
import { POD } from "../api/kinds/pod.ts";
import { SERVICE } from "../api/kinds/service.ts";
import { startReading } from "./object_reader.ts";
import { ProtobufCursor, ProtobufObject } from "./protobuf.ts";
import { slimObject } from "./slim.ts";
import { StringTable } from "./string_table.ts";

function slim(spec: KindSpec, bytes: Uint8Array) {
  const cursor = new ProtobufCursor(bytes, startReading());
  const problems: string[] = [];
  const object = slimObject(spec, new ProtobufObject(cursor, 0, bytes.length), {
    strings: new StringTable(),
    onProblem: ({ object, path, value, message }) =>
      problems.push(`${object} ${path} is ${value}: ${message}`),
  });
  return { object: object as unknown, problems };
}

const META = message([[1, "web"], [3, "shop"]]);
const METADATA = { name: "web", namespace: "shop" };

Deno.test("slimObject() drops empty fields in protobuf, except where empty is not absent", () => {
  const endpoint = message([[1, "10.1.0.1"], [2, message([[1, 0]])], [6, ""]]);
  const port = message([[1, ""], [3, 0]]);
  assertEquals(slim(ENDPOINT_SLICE, message([[1, META], [2, endpoint], [3, port], [4, "IPv4"]])), {
    object: {
      metadata: METADATA,
      addressType: "IPv4",
      endpoints: [{ addresses: ["10.1.0.1"], conditions: { ready: false }, nodeName: "" }],
      ports: [{ name: "", port: 0 }],
    },
    problems: [],
  });
  const spec = message([[3, ""], [4, ""], [12, 0], [1, message([[1, ""], [3, 80], [5, 0]])]]);
  assertEquals(slim(SERVICE, message([[1, META], [2, spec]])).object, {
    metadata: METADATA,
    spec: { ports: [{ port: 80 }] },
  });
});

Deno.test("slimObject() reads which containers of a pod have ended, in protobuf as in JSON", () => {
  const spec = { containers: [{}, {}, {}] };
  const states = [[[3, message([[1, 0], [3, "Completed"]])]], [[3, message([[1, -1]])]], [[2, ""]]];
  const statuses = states.map((state) => [8, message([[2, message(state as [])]])] as const);
  const { object, problems } = slim(
    POD,
    message([
      [1, META],
      [2, message([[2, ""], [2, ""], [2, ""]])],
      [3, message([[1, "Running"], ...statuses, [13, message([[2, message([[1, ""]])]])]])],
    ]),
  );
  const ended = (exitCode: number) => ({ state: { terminated: { exitCode } } });
  const containerStatuses = [ended(0), ended(-1), {}];
  const status = { phase: "Running", containerStatuses, ephemeralContainerStatuses: [{}] };
  assertEquals(object, { metadata: METADATA, spec, status });
  assertEquals(problems, []);
  const json = {
    metadata: METADATA,
    spec: { containers: [{ name: "a" }, { name: "b" }, { name: "c" }] },
    status: {
      phase: "Running",
      containerStatuses: [
        { name: "a", state: { terminated: { exitCode: 0, reason: "Completed" } } },
        { name: "b", state: { terminated: { exitCode: -1 } } },
        { name: "c", state: { running: { startedAt: "2026-01-01T00:00:00Z" } } },
      ],
      ephemeralContainerStatuses: [{ name: "d", state: { waiting: {} } }],
    },
  };
  const read = slimObject(POD, json, { strings: new StringTable(), onProblem() {} });
  assertEquals<unknown>(read, { metadata: METADATA, spec, status });
});

Deno.test("slimObject() reads times in protobuf as RFC 3339", () => {
  const lease = (seconds: number, nanoseconds: number) =>
    message([[1, META], [2, message([[4, message([[1, seconds], [2, nanoseconds]])]])]]);
  const renewTime = (bytes: Uint8Array) =>
    (slim(LEASE, bytes).object as { spec: { renewTime?: string } } | undefined)?.spec.renewTime;
  assertEquals(renewTime(lease(1_767_225_600, 1_234_567)), "2026-01-01T00:00:00.001234Z");
  assertEquals(renewTime(lease(-1, 0)), "1969-12-31T23:59:59.000000Z");
  assertEquals(renewTime(message([[1, META], [2, message([[4, ""]])]])), undefined);
  assertEquals(slim(LEASE, lease(1e15, 0)).object, undefined);
  // Random objects of the API machinery are never about to be deleted.
  const [created, deleted] = [message([[1, 0]]), message([[1, 60], [2, 5]])];
  assertEquals(
    slim(LEASE, message([[1, message([[1, "web"], [8, created], [9, deleted]])]])).object,
    {
      metadata: {
        name: "web",
        creationTimestamp: "1970-01-01T00:00:00Z",
        deletionTimestamp: "1970-01-01T00:01:00Z",
      },
      spec: {},
    },
  );
});

Deno.test("slimObject() names the field of a wrong type in protobuf", () => {
  const ports = (port: Uint8Array) => message([[1, META], [2, message([[1, port]])]]);
  const left = "The object is left out: the field has to be";
  for (
    const [bytes, problem] of [
      [ports(message([[3, "80"]])), `spec.ports[0].port is "wire type 2": ${left} a number`],
      [ports(message([[1, "http"]])), `spec.ports[0].port is undefined: ${left} a number`],
      [message([[1, META]]), `spec is undefined: ${left} an object`],
      [message([[1, META], [2, 5]]), `spec is "wire type 0": ${left} an object`],
      [
        new Uint8Array([...message([[1, META]]), 0x12, 9, 0]),
        `spec is "a length of 9 is too large": ${left} intact protobuf`,
      ],
    ] as const
  ) {
    assertEquals(slim(SERVICE, bytes), { object: undefined, problems: [`shop/web ${problem}`] });
  }
});

Deno.test("slimObject() keeps a NetworkPolicy of which a part in protobuf cannot be read", () => {
  const policy = (spec: Uint8Array) => message([[1, META], [2, spec]]);
  const specOf = (bytes: Uint8Array) =>
    (slim(NETWORK_POLICY, bytes).object as { spec: unknown } | undefined)?.spec;
  const selector = message([]);
  // A field of a newer API, one of a wrong type, and a message that is cut short.
  assertEquals(specOf(policy(message([[1, selector], [9, "new"], [9, "new"]]))), {
    podSelector: {},
    unknownFields: ["field 9"],
  });
  assertEquals(specOf(policy(message([[1, selector], [2, 5], [4, "Ingress"]]))), {
    podSelector: {},
    policyTypes: ["Ingress"],
    unknownFields: ["ingress"],
  });
  assertEquals(
    specOf(policy(new Uint8Array([...message([[1, selector], [4, "Egress"]]), 0x1a, 9]))),
    {
      unknownFields: [],
    },
  );
  const rule = message([[1, message([[2, message([[1, 1], [3, "http"]])]])]]);
  assertEquals(specOf(policy(message([[1, selector], [2, rule]]))), {
    podSelector: {},
    ingress: [{ ports: [{ port: "http" }] }],
  });
});

Deno.test("slimObject() refuses an object of a million empty items in protobuf", () => {
  const ports = new Uint8Array(2_000_000);
  for (let at = 0; at < ports.length; at += 2) ports[at] = 0x0a;
  const { object, problems } = slim(SERVICE, message([[1, META], [2, ports]]));
  assertEquals([object, problems.length], [undefined, 1]);
});
