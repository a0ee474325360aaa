import { assertEquals, assertRejects } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import type { KubeObject } from "../api/kind.ts";
import { ApiError } from "./api_error.ts";
import { Informer } from "./informer.ts";
import { WatchFeed } from "./watch_feed.ts";
import type { WatchEvent } from "./watch_stream.ts";

const NEVER = new AbortController().signal;
const END = { annotations: { "k8s.io/initial-events-end": "true" } };

function object(name: string, resourceVersion: string) {
  return { metadata: { name, resourceVersion } };
}

function bookmark(resourceVersion: string, more: object = {}): WatchEvent {
  return { type: "BOOKMARK", object: { metadata: { resourceVersion, ...more } } };
}

/** Runs events into an informer with `known` in it; returns the reported events. */
async function feed(
  events: readonly WatchEvent[],
  { initialEvents = false, known = [], signal = NEVER }: {
    initialEvents?: boolean;
    known?: readonly string[];
    signal?: AbortSignal;
  } = {},
) {
  const reported: string[] = [];
  const informer = new Informer<KubeObject>({
    onAdd: ({ metadata }) => reported.push(`add ${metadata.name}`),
    onUpdate: (_, { metadata }) => reported.push(`update ${metadata.name}`),
    onDelete: ({ metadata }) => reported.push(`delete ${metadata.name}`),
    onSynced: () => reported.push("synced"),
  });
  for (const name of known) informer.upsert(object(name, "1"));
  reported.length = 0;
  const versions: (string | undefined)[] = [];
  let newInList = 0;
  const feed = new WatchFeed(new FakeClock(), {
    informer,
    slim: (raw) => (raw as KubeObject).metadata?.name === "bad" ? undefined : raw as KubeObject,
    initialEvents,
    onEvent: (version) => versions.push(version),
    onNewInList: () => newInList++,
    onListed: () => reported.push("listed"),
  });
  async function* stream() {
    for (const event of events) yield [event];
  }
  const error = await feed.run(stream(), signal).catch((error: unknown) => error);
  return { reported, versions, newInList, error, listing: feed.listing };
}

Deno.test("WatchFeed applies each event, and says from which version to continue", async () => {
  const { reported, versions } = await feed([
    { type: "ADDED", object: object("b", "5") },
    { type: "MODIFIED", object: object("a", "6") },
    { type: "DELETED", object: object("b", "7") },
    bookmark("9"),
  ], { known: ["a"] });
  assertEquals(reported, ["add b", "update a", "delete b"]);
  assertEquals(versions, ["5", "6", "7", "9"]);
});

Deno.test("WatchFeed compares initial events with the known objects, and ends with a bookmark", async () => {
  const { reported, versions, listing } = await feed([
    { type: "ADDED", object: object("a", "1") },
    { type: "ADDED", object: object("c", "3") },
    bookmark("4"),
    bookmark("5", END),
    { type: "DELETED", object: object("c", "6") },
  ], { initialEvents: true, known: ["a", "b"] });
  assertEquals(reported, ["add c", "delete b", "synced", "listed", "delete c"]);
  // No version before the end: events before it come in no order.
  assertEquals(versions, [undefined, undefined, undefined, "5", "6"]);
  assertEquals(listing, false);
});

Deno.test("WatchFeed counts each object of a list once, known or not, as its progress", async () => {
  const { newInList } = await feed([
    { type: "ADDED", object: object("known", "2") },
    { type: "ADDED", object: object("a", "3") },
    { type: "MODIFIED", object: object("a", "4") },
    { type: "MODIFIED", object: object("known", "5") },
    bookmark("6"),
    { type: "ADDED", object: object("b", "7") },
  ], { initialEvents: true, known: ["known", "other"] });
  assertEquals(newInList, 3);
});

Deno.test("WatchFeed deletes nothing when the initial events break off", async () => {
  const { reported, listing } = await feed([{ type: "ADDED", object: object("a", "2") }], {
    initialEvents: true,
    known: ["a", "b"],
  });
  assertEquals([reported, listing], [["update a"], true]);
});

Deno.test("WatchFeed keeps an object deleted that is deleted within the initial events", async () => {
  const { reported } = await feed([
    { type: "ADDED", object: object("a", "2") },
    { type: "DELETED", object: object("a", "3") },
    bookmark("3", END),
  ], { initialEvents: true });
  assertEquals(reported, ["add a", "delete a", "synced", "listed"]);
});

Deno.test("WatchFeed throws an ERROR event, after the events before it", async () => {
  const { reported, error } = await feed([
    { type: "ADDED", object: object("a", "2") },
    { type: "ERROR", object: { code: 410, reason: "Expired", message: "too old" } },
    { type: "ADDED", object: object("b", "3") },
  ]);
  assertEquals(reported, ["add a"]);
  await assertRejects(
    () => Promise.reject(error),
    ApiError,
    "Cannot watch on: 410 Expired: too old",
  );
});

Deno.test("WatchFeed leaves out an unreadable object, and continues from its version nevertheless", async () => {
  const { reported, versions } = await feed([
    { type: "ADDED", object: object("bad", "2") },
    { type: "DELETED", object: null },
    { type: "DELETED", object: { metadata: { resourceVersion: "" } } },
    { type: "ADDED", object: object("a", "3") },
  ]);
  assertEquals(reported, ["add a"]);
  assertEquals(versions, ["2", undefined, undefined, "3"]);
});

Deno.test("WatchFeed applies nothing after an abort, though it is decoded already", async () => {
  const { reported, error } = await feed([{ type: "ADDED", object: object("a", "2") }], {
    signal: AbortSignal.abort("stop"),
  });
  assertEquals([reported, error], [[], "stop"]);
});
