/** Random objects of the real API machinery, in both encodings. */
import { assert, assertEquals } from "@std/assert";
import type * as v from "valibot";
import type { KindSpec } from "../../lib/api/kind.ts";
import { ENDPOINT_SLICE } from "../../lib/api/kinds/endpoint_slice.ts";
import { ENDPOINTS } from "../../lib/api/kinds/endpoints.ts";
import { LEASE } from "../../lib/api/kinds/lease.ts";
import { NAMESPACE } from "../../lib/api/kinds/namespace.ts";
import { NETWORK_POLICY } from "../../lib/api/kinds/network_policy.ts";
import { NODE } from "../../lib/api/kinds/node.ts";
import { POD } from "../../lib/api/kinds/pod.ts";
import { ROUTED_NODE } from "../../lib/api/kinds/routed_node.ts";
import { ROUTED_SERVICE } from "../../lib/api/kinds/routed_service.ts";
import { SERVICE } from "../../lib/api/kinds/service.ts";
import { SERVICE_CIDR } from "../../lib/api/kinds/service_cidr.ts";
import { type SchemaNode, schemaNode } from "../../lib/api/schema_node.ts";
import { ProtobufCursor, readEnvelope } from "../../lib/kube/protobuf.ts";
import { startReading } from "../../lib/kube/object_reader.ts";
import { slimObject } from "../../lib/kube/slim.ts";
import { StringTable } from "../../lib/kube/string_table.ts";
import { runTool } from "../support/drivers/run_tool.ts";

/** Every kind that is read in protobuf. */
const SPECS: readonly KindSpec[] = [
  SERVICE,
  ROUTED_SERVICE,
  ENDPOINT_SLICE,
  ENDPOINTS,
  NODE,
  ROUTED_NODE,
  SERVICE_CIDR,
  POD,
  NAMESPACE,
  NETWORK_POLICY,
  LEASE,
];

/** A line of `apiserver marshal`. */
interface Marshalled {
  readonly kind: string;
  readonly json: unknown;
  /** In base 64. */
  readonly protobuf: string;
}

/** Defines the test; `program` is the built `tests/apiserver`. */
export function defineEncodingTests(program: string): void {
  Deno.test("slimObject() reads the same from JSON and protobuf (k8s.io/apimachinery)", async () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const stdout = await runTool(program, [
      "marshal",
      `--seed=${seed}`,
      "--count=200",
      `--names=${SPECS.flatMap(namesOf).join()}`,
    ]);
    const lines = stdout.trim().split("\n").map((line) => JSON.parse(line) as Marshalled);
    for (const spec of SPECS) {
      const objects = lines.filter(({ kind }) => kind === spec.kind);
      assert(objects.length > 0, `no ${spec.kind}`);
      let readable = 0;
      for (const { json, protobuf } of objects) {
        const bytes = Uint8Array.fromBase64(protobuf);
        const envelope = readEnvelope(new ProtobufCursor(bytes, startReading()));
        assertEquals(envelope.kind, spec.kind);
        const expected = slim(spec, json);
        const message = `seed ${seed}, ${spec.plural}: ${JSON.stringify(json)}`;
        assertEquals(slim(spec, envelope.object), expected, message);
        if (expected.object !== undefined) readable++;
      }
      assert(readable > objects.length / 10, `only ${readable} ${spec.plural} are readable`);
    }
  });
}

/** The labels and annotations of a kind that are read. */
function namesOf({ schema }: KindSpec): readonly string[] {
  const { entries: { metadata } } = fieldsOf(schema);
  return Object.values(fieldsOf(metadata!).entries).flatMap((entry) => {
    const { node } = schemaNode(entry);
    return node.type === "names" && node.names !== "all" ? node.names : [];
  });
}

function fieldsOf(schema: v.GenericSchema): SchemaNode & { type: "fields" } {
  return schemaNode(schema).node as SchemaNode & { type: "fields" };
}

function slim(spec: KindSpec, raw: unknown) {
  const problems: string[] = [];
  const object = slimObject(spec, raw, {
    strings: new StringTable(),
    onProblem: ({ object, path }) => problems.push(`${object} ${path}`),
  });
  // The encodings have the fields in different orders, and an object is left out at the first fault.
  if (object === undefined) return { object, problems: problems.map((text) => text.split(" ")[0]) };
  return { object, problems };
}
