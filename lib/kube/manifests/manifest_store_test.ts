import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { testService } from "../../../tests/support/builders/builders.ts";
import { RecordingInformers } from "../../../tests/support/fakes/recording_informers.ts";
import { type KindSpec, objectKey } from "../../api/kind.ts";
import { NETWORK_POLICY, type NetworkPolicy } from "../../api/kinds/network_policy.ts";
import { SERVICE, type Service } from "../../api/kinds/service.ts";
import { systemClock } from "../../os/clock.ts";
import { InformerSet } from "../informer_set.ts";
import type { FileObjects, PlacedObject } from "./manifest_file.ts";
import { ManifestStore } from "./manifest_store.ts";

/** Services of a file, by name; the cluster IP reports the versions apart. */
type Services = Readonly<Record<string, string>>;

function objectsOf(services: Services): FileObjects {
  const entries = Object.entries(services).map(([name, clusterIP], index) => {
    const object = { metadata: { name, namespace: "default" }, spec: { clusterIP } };
    const placed: PlacedObject = {
      entry: { spec: SERVICE, object },
      line: index + 1,
      fileTimeMs: 0,
    };
    return [`Service default/${name}`, placed] as const;
  });
  return new Map(entries);
}

function changesOf(files: Readonly<Record<string, Services>>): ReadonlyMap<string, FileObjects> {
  return new Map(Object.entries(files).map(([path, services]) => [path, objectsOf(services)]));
}

function makeStore(): { store: ManifestStore; informers: RecordingInformers } {
  const informers = new RecordingInformers();
  return { store: new ManifestStore(systemClock, informers.set), informers };
}

Deno.test("update() ends with the first file by path for each object, whatever came before", async () => {
  const services = fc.dictionary(fc.constantFrom("x", "y", "z"), fc.constantFrom("1", "2", "3"), {
    noNullPrototype: true,
  });
  const step = fc.dictionary(fc.constantFrom("a", "b", "c", "d"), services, {
    noNullPrototype: true,
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 8 }), async (steps) => {
      const { store, informers } = makeStore();
      const files: Record<string, Services> = {};
      for (const changes of steps) {
        Object.assign(files, changes);
        await store.update(changesOf(changes));
        const expected: Record<string, string> = {};
        const shadows = new Set<string>();
        for (const path of Object.keys(files).sort()) {
          for (const [name, clusterIp] of Object.entries(files[path]!)) {
            if (name in expected) shadows.add(`${path} ${name}`);
            expected[name] ??= clusterIp;
          }
        }
        const known = [...informers.services.values()]
          .map(({ metadata, spec }) => [metadata.name, spec.clusterIP]);
        assertEquals(Object.fromEntries(known), expected);
        const shadowed = [...store.shadowed()].flatMap(([path, list]) =>
          list.map(({ id }) => `${path} ${id.slice("Service default/".length)}`)
        );
        assertEquals(new Set(shadowed), shadows);
      }
    }),
    { numRuns: 300, seed: 20261121 },
  );
});

Deno.test("update() keeps the file of an object in use as long as the object is in it", async () => {
  const services = fc.dictionary(fc.constantFrom("x", "y"), fc.constantFrom("1", "2"), {
    noNullPrototype: true,
  });
  const step = fc.dictionary(fc.constantFrom("a", "b", "c"), services, { noNullPrototype: true });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 2, maxLength: 8 }), async (steps) => {
      const { store, informers } = makeStore();
      store.markSynced();
      const files: Record<string, Services> = {};
      const used = new Map<string, string>();
      for (const changes of steps) {
        Object.assign(files, changes);
        await store.update(changesOf(changes));
        const shadowed = new Set(
          [...store.shadowed()].flatMap(([path, list]) => list.map(({ id }) => `${path} ${id}`)),
        );
        for (const name of ["x", "y"]) {
          const having = Object.keys(files).filter((path) => name in files[path]!);
          const now = having.filter((path) => !shadowed.has(`${path} Service default/${name}`));
          assertEquals(now.length, Math.min(1, having.length));
          const before = used.get(name);
          if (before !== undefined && having.includes(before)) assertEquals(now, [before]);
          used.delete(name);
          if (now[0] === undefined) continue;
          used.set(name, now[0]);
          assertEquals(informers.clusterIp(name), files[now[0]]![name]);
        }
      }
    }),
    { numRuns: 300, seed: 20261127 },
  );
});

Deno.test("update() gives a policy that comes later a later creation time, whatever the time of its file", async () => {
  const informers = new InformerSet();
  informers.subscribe(SERVICE);
  const policies = informers.subscribe(NETWORK_POLICY);
  const store = new ManifestStore(systemClock, informers);
  const put = (name: string, fileTimeMs: number, types: readonly ("Ingress" | "Egress")[]) => {
    const metadata = { name, namespace: "default" };
    const object = { metadata, spec: { podSelector: {}, policyTypes: types } } as NetworkPolicy;
    const placed: PlacedObject = { entry: { spec: NETWORK_POLICY, object }, line: 1, fileTimeMs };
    return store.update(
      new Map([[`${name}.yaml`, new Map([[`NetworkPolicy default/${name}`, placed]])]]),
    );
  };
  const ages = () =>
    [...policies.values()].map(({ metadata }) => [metadata.name, metadata.creationTimestamp]);
  await put("y", 3_000, ["Ingress"]);
  await put("z", 1_000, ["Ingress"]);
  store.markSynced();
  await put("a", 0, ["Ingress"]);
  await put("z", 9_000, ["Egress"]);
  assertEquals(ages(), [
    ["y", "1970-01-01T00:00:03.000Z"],
    ["z", "1970-01-01T00:00:01.000Z"],
    ["a", "1970-01-01T00:00:04.000Z"],
  ]);
});

const [FIRST, SECOND] = ["172.30.0.1", "172.30.0.2"];

/** Makes a Service with a further address. */
type Having = (address: string) => Service;

const HAVING: readonly (readonly [where: string, having: Having])[] = [
  ["spec", (address) => testService("web-1", { clusterIP: FIRST, externalIPs: [address] })],
  [
    "status",
    (ip) => testService("web-1", { clusterIP: FIRST, type: "LoadBalancer" }, { ingress: [{ ip }] }),
  ],
];

for (const [where, having] of HAVING) {
  Deno.test(`update() keeps Services of one age at one age when the ${where} of one claims what another one has`, async () => {
    const informers = new InformerSet();
    const services = informers.subscribe(SERVICE);
    const store = new ManifestStore(systemClock, informers);
    const put = (...objects: readonly Service[]) => {
      const placed = objects.map((object) => {
        const entry = { spec: SERVICE as KindSpec, object };
        return [`Service ${objectKey(object)}`, { entry, line: 1, fileTimeMs: 0 }] as const;
      });
      return store.update(new Map([["a", new Map(placed)]]));
    };
    // The names of ServicePorts sort the other way round.
    const web = testService("web", { clusterIP: FIRST });
    const other = testService("other", { clusterIP: SECOND });
    await put(web, having("172.30.0.3"), other);
    store.markSynced();
    await put(web, having(SECOND), other);
    const ages = [...services.values()].map(({ metadata: { name, creationTimestamp } }) => {
      return [name, creationTimestamp];
    });
    assertEquals(Object.fromEntries(ages), {
      "web": "1970-01-01T00:00:01.000Z",
      "web-1": "1970-01-01T00:00:01.000Z",
      "other": "1970-01-01T00:00:00.000Z",
    });
  });
}

Deno.test("shadowed() can be asked while an update is under way", async () => {
  let time = 0;
  // Each look at the clock is the end of a time slice.
  const clock = { ...systemClock, now: () => time += 1000 };
  const store = new ManifestStore(clock, new RecordingInformers().set);
  await store.update(changesOf({ "b.yaml": { a: "1", b: "1" } }));
  const updating = store.update(changesOf({ "a.yaml": { a: "1", b: "1" }, "c.yaml": { a: "1" } }));
  let isUnderWay = true;
  void updating.finally(() => isUnderWay = false);
  while (isUnderWay) {
    store.shadowed();
    await systemClock.yieldToEventLoop();
  }
  assertEquals([...store.shadowed().keys()].sort(), ["b.yaml", "c.yaml"]);
});
