import { assert, assertEquals } from "@std/assert";
import {
  concat,
  envelope,
  message,
  protobufEvent,
  protobufList,
  protobufService,
} from "../../tests/support/builders/protobuf_objects.ts";
import { chooseSeed, randomFrom } from "../../tests/support/builders/seeded_random.ts";
import type { KindSpec } from "../api/kind.ts";
import { ENDPOINT_SLICE } from "../api/kinds/endpoint_slice.ts";
import { LEASE } from "../api/kinds/lease.ts";
import { NETWORK_POLICY } from "../api/kinds/network_policy.ts";
import { SERVICE } from "../api/kinds/service.ts";
import { ListError, protobufItems } from "./list_page.ts";
import { slimObject } from "./slim.ts";
import { StringTable } from "./string_table.ts";
import { decodeWatch, WatchStreamError } from "./watch_stream.ts";

const META = message([
  ...[[1, "web"], [3, "shop"], [6, "7"], [8, message([[1, 1_767_225_600]])]] as const,
  [11, message([[1, "kubernetes.io/service-name"], [2, "web"]])],
]);
const SLICE = message([
  [1, META],
  [2, message([[1, "10.1.0.1"], [2, message([[1, 1], [2, 1], [3, 0]])], [6, "node-1"]])],
  [3, message([[1, "http"], [2, "TCP"], [3, 8080]])],
  [4, "IPv4"],
]);
const SELECTOR = message([[1, message([[1, "app"], [2, "web"]])]]);
const RULE = message([
  [1, message([[1, "TCP"], [2, message([[1, 1], [3, "http"]])]])],
  [2, message([[1, SELECTOR]])],
]);
const POLICY = message([[1, META], [2, message([[1, SELECTOR], [2, RULE], [4, "Ingress"]])]]);
const HELD = message([
  [1, META],
  [2, message([[1, "node-1"], [2, 3], [4, message([[1, 1_767_225_600], [2, 5_000]])]])],
]);
const OBJECTS: readonly (readonly [KindSpec, Uint8Array])[] = [
  [SERVICE, protobufService("web", { annotations: { "kube-relay.io/x": "y" } })],
  [ENDPOINT_SLICE, SLICE],
  [NETWORK_POLICY, POLICY],
  [LEASE, HELD],
];

/** A frame of a server with up to four of its bytes changed, doubled or lost. */
function damage(frame: Uint8Array, random: () => number): Uint8Array {
  let bytes = frame.slice();
  for (let left = 1 + Math.floor(random() * 4); left > 0; left--) {
    const at = Math.floor(random() * bytes.length);
    const to = at + Math.floor(random() * 16);
    const how = random();
    if (how < 0.4) bytes[at] = Math.floor(random() * 256);
    else if (how < 0.6) bytes[at]! ^= 1 << Math.floor(random() * 8);
    else if (how < 0.8) bytes = concat([bytes.subarray(0, at), bytes.subarray(to)]);
    else bytes = concat([bytes.subarray(0, to), bytes.subarray(at)]);
  }
  return bytes;
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

Deno.test("damaged frames in protobuf never crash a reader, hang it, or make it grow", async () => {
  const seed = chooseSeed();
  const random = randomFrom(seed);
  const strings = new StringTable();
  const counts = { read: 0, unreadable: 0, refused: 0 };
  let growth = 0;
  for (let round = 0; round < 50_000; round++) {
    const [spec, bytes] = OBJECTS[round % OBJECTS.length]!;
    const note = (raw: unknown) => {
      let problems = 0;
      const object = slimObject(spec, raw, { strings, onProblem: () => problems++ });
      assert(object !== undefined || problems > 0);
      counts[object === undefined ? "unreadable" : "read"]++;
      // A reader keeps what the frame holds, and its texts once.
      growth = Math.max(growth, JSON.stringify(object ?? null).length - 16 * bytes.length);
    };
    const frames = [
      () => {
        for (
          const item of protobufItems(damage(protobufList(spec.kind, [bytes]), random), spec.kind)
        ) {
          note(item);
        }
      },
      async () => {
        const event = damage(protobufEvent("ADDED", envelope(spec.kind, bytes)), random);
        for await (const events of decodeWatch(once(event), spec.kind)) {
          for (const { type, object } of events) if (type !== "ERROR") note(object);
        }
      },
    ];
    for (const read of frames) {
      try {
        await read();
      } catch (error) {
        const isExpected = error instanceof ListError || error instanceof WatchStreamError;
        assert(isExpected, `KUBE_RELAY_SEED=${seed} round ${round}: ${error}`);
        counts.refused++;
      }
    }
  }
  assertEquals(growth <= 0, true);
  // The damage is such that each of these happens often.
  for (const count of Object.values(counts)) assert(count > 5_000, JSON.stringify(counts));
});
