/**
 * A kind that no release has: its spec alone makes it listed, watched, read from manifests, checked,
 * reduced and dumped.
 *
 * @module
 */
import { assertEquals, assertThrows } from "@std/assert";
import * as v from "valibot";
import { collectionPath, objectKey } from "../lib/api/kind.ts";
import { dumpedObjects } from "../lib/tools/dump/dump_objects.ts";
import { pickAllowed } from "../lib/tools/dump/pick_allowed.ts";
import { ApiSource } from "../lib/kube/api_source.ts";
import { InformerSet, named } from "../lib/kube/informer_set.ts";
import { formatProblem } from "../lib/kube/manifests/manifest_problem.ts";
import { FileManifestSource } from "../lib/kube/manifests/manifests.ts";
import { systemClock } from "../lib/os/clock.ts";
import { eventually } from "./support/eventually.ts";
import { FakeApiServer } from "./support/fakes/fake_api_server.ts";
import { FakeManifestFiles } from "./support/fakes/fake_manifest_files.ts";
import { MemoryLogger } from "./support/fakes/memory_logger.ts";
import { LANTERN, lantern } from "./support/builders/lantern.ts";
import { StaticAuth } from "./support/builders/static_auth.ts";

interface Followed {
  readonly informers: InformerSet;
  readonly events: string[];
}

/** Two subscriptions of one kind: all, and the one of a name. */
function follow(): Followed {
  const informers = new InformerSet();
  const events: string[] = [];
  for (const [mark, options] of [["all", {}], ["one", named("b")]] as const) {
    informers.subscribe(LANTERN, options, {
      onAdd: (object) => void events.push(`${mark} +${objectKey(object)} ${object.spec.street}`),
      onUpdate: (_, object) => void events.push(`${mark} ~${objectKey(object)}`),
      onDelete: (object) => void events.push(`${mark} -${objectKey(object)}`),
      onSynced: () => void events.push(`${mark} synced`),
    });
  }
  return { informers, events };
}

Deno.test("a made-up kind is listed and watched at an API server, once for each selector", async () => {
  await using fake = await FakeApiServer.start({ scheme: "http" });
  fake.store.create(lantern("a", { street: "Elm" }));
  fake.store.create(lantern("b", { street: "Oak", ports: [{ port: 81, comment: null }] }));
  const { informers, events } = follow();
  const logger = new MemoryLogger();
  const source = new ApiSource({
    clock: systemClock,
    logger,
    random: () => 0,
    auth: new StaticAuth(fake.url),
  }, { informers });
  const abort = new AbortController();
  const running = source.run(abort.signal);
  await eventually("everything is listed", () => informers.synced());
  fake.store.delete(lantern("b", { street: "Oak" }));
  await eventually(
    "both hear of it",
    () => events.filter((event) => event.includes("-")).length === 2,
  );
  abort.abort();
  await running;
  assertEquals(events.filter((event) => event.startsWith("all")), [
    "all +park/a Elm",
    "all +park/b Oak",
    "all synced",
    "all -park/b",
  ]);
  assertEquals(events.filter((event) => event.startsWith("one")), [
    "one +park/b Oak",
    "one synced",
    "one -park/b",
  ]);
  const { metadata, spec } = informers.of(LANTERN).get("park/a")!;
  const { resourceVersion: _, creationTimestamp: __, ...kept } = metadata;
  const annotations = { height: "3", owner: "s3cret" };
  assertEquals<unknown>(kept, { name: "a", namespace: "park", annotations });
  assertEquals<unknown>(spec, { street: "Elm" });
  const paths = new Set(fake.requests.map(({ path }) => path));
  assertEquals([...paths], [collectionPath(LANTERN)]);
  assertEquals(collectionPath(LANTERN), "/apis/lights.example.org/v2/lanterns");
});

Deno.test("a made-up kind is read from manifests, with its checks and defaults", async () => {
  const files = new FakeManifestFiles(".", "m");
  const objects = [
    lantern("a", { street: "Elm", stret: "Elm" }),
    lantern("b", { street: 7 }),
    lantern("c", { street: "Oak", ports: [] }),
    { ...lantern("d", { street: "Ash" }), apiVersion: "lights.example.org/v3" },
    { ...lantern("e", { street: "Ash" }), apiVersion: "other.example.org/v2" },
    { apiVersion: "v1", kind: "Service", metadata: { name: "web" }, spec: { clusterIP: "bad" } },
  ];
  files.write("m/a.json", JSON.stringify({ apiVersion: "v1", kind: "List", items: objects }));
  const { informers, events } = follow();
  const source = new FileManifestSource({
    clock: systemClock,
    logger: new MemoryLogger(),
    fileSystem: files,
  }, { paths: ["m"], informers });
  const abort = new AbortController();
  const running = source.run(abort.signal);
  await eventually("everything is read", () => informers.synced());
  abort.abort();
  await running;
  assertEquals(events, ["all +park/a Elm", "all synced", "one synced"]);
  assertEquals(informers.of(LANTERN).get("park/a")!.spec, { street: "Elm", ports: [{ port: 80 }] });
  const problems = source.status().flatMap((file) => file.problems).map(formatProblem);
  assertEquals(problems.map((problem) => problem.replace(/^m.*?: (Lantern )?/, "")), [
    `park/a: spec.stret is "Elm": is no field of kind Lantern; did you mean 'street'?`,
    "park/b: spec.street is 7: has to be text; numbers, true and false need quotes",
    "park/c: spec.ports: has to hold at least one port",
    'apiVersion is "lights.example.org/v3": has to be lights.example.org/v2 or ' +
    "lights.example.org/v1 for kind Lantern",
  ]);
});

Deno.test("a made-up kind is dumped without secrets, and read again", () => {
  const schema = dumpedObjects([LANTERN]);
  const spec = { street: "Elm", ports: [{ port: 80 }] };
  const raw = lantern("a", spec, { colour: "red" });
  const dumped = {
    lanterns: [{
      metadata: {
        name: "a",
        namespace: "park",
        labels: { colour: "red" },
        annotations: { height: "3" },
      },
      spec,
    }],
  };
  assertEquals(JSON.parse(JSON.stringify(pickAllowed({ lanterns: [raw] }, schema))), dumped);
  assertEquals<unknown>(v.parse(schema, dumped), dumped);
  const wrong = { lanterns: [{ ...dumped.lanterns[0], metadata: { name: "a;b" } }] };
  assertThrows(() => v.parse(schema, wrong), v.ValiError, "has to be a name of letters");
});
