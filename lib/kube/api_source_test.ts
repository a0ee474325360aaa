import { assertEquals, assertStringIncludes } from "@std/assert";
import { eventually } from "../../tests/support/eventually.ts";
import { FakeApiServer } from "../../tests/support/fakes/fake_api_server.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { StaticAuth } from "../../tests/support/builders/static_auth.ts";
import { collectionPath } from "../api/kind.ts";
import { ENDPOINT_SLICE } from "../api/kinds/endpoint_slice.ts";
import { SERVICE_CIDR } from "../api/kinds/service_cidr.ts";
import { RecordingInformers } from "../../tests/support/fakes/recording_informers.ts";
import { systemClock } from "../os/clock.ts";
import { ApiSource, type ApiSourceOptions } from "./api_source.ts";
import type { KubeAuth } from "./kube_auth.ts";

const NODES = "/api/v1/nodes";

interface Stage {
  readonly fake: FakeApiServer;
  readonly source: ApiSource;
  readonly logger: MemoryLogger;
  readonly informers: RecordingInformers;
  readonly reported: string[];
}

function phaseOf({ source }: Stage, kind: string): string | undefined {
  return source.status().resources.find((resource) => resource.kind === kind)?.phase;
}

/** Runs a source on a fake server. */
async function withSource(
  run: (stage: Stage) => Promise<void>,
  { prepare, auth, scheme = "https", endpointsFallback = false, ...options }:
    & Partial<Omit<ApiSourceOptions, "informers">>
    & {
      readonly prepare?: (fake: FakeApiServer) => void;
      readonly auth?: (fake: FakeApiServer) => KubeAuth;
      readonly scheme?: "https" | "http";
      readonly endpointsFallback?: boolean;
    } = {},
): Promise<void> {
  await using fake = await FakeApiServer.start({ scheme });
  prepare?.(fake);
  const informers = new RecordingInformers({
    nodeName: "node-1",
    endpointsFallback,
    words: { add: "add ", update: "update ", delete: "delete ", synced: "synced " },
  });
  const reported = informers.events;
  const logger = new MemoryLogger();
  const source = new ApiSource({
    clock: systemClock,
    logger,
    random: () => 0,
    auth: auth?.(fake) ?? new StaticAuth(fake.url, { ca: fake.ca }),
  }, {
    informers: informers.set,
    ...options,
    timing: { backoff: { initialMs: 20, maxMs: 100 }, ...options.timing },
  });
  const abort = new AbortController();
  const running = source.run(abort.signal);
  try {
    await run({ fake, source, logger, informers, reported });
  } finally {
    abort.abort();
    await running;
  }
}

/** Waits: it is asked for again and again, which is another phase. */
function isUnavailable(stage: Stage, kind: string): Promise<unknown> {
  return eventually(`${kind} is unavailable`, () => phaseOf(stage, kind) === "unavailable");
}

async function synced({ informers }: Stage): Promise<void> {
  await eventually("everything is listed", () => informers.set.synced());
}

const SLICE = {
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: { name: "web-1", namespace: "default" },
  addressType: "IPv4",
  endpoints: [],
};
const ENDPOINTS = {
  apiVersion: "v1",
  kind: "Endpoints",
  metadata: { name: "web", namespace: "default" },
};

for (const scheme of ["https", "http"] as const) {
  Deno.test(`ApiSource.run() fills every informer (${scheme})`, () =>
    withSource(async (stage) => {
      await synced(stage);
      assertEquals(stage.reported.toSorted(), [
        "add EndpointSlice default/web-1",
        "add Node node-1",
        "add Service default/web",
        "add ServiceCIDR kubernetes",
        "synced EndpointSlice",
        "synced Endpoints",
        "synced Node",
        "synced Service",
        "synced ServiceCIDR",
      ]);
      const { connected, resources, hint, auth } = stage.source.status();
      assertEquals([connected, hint, auth.server], [true, undefined, stage.fake.url]);
      assertEquals(resources.map(({ kind }) => kind).toSorted(), [
        "EndpointSlice",
        "Node",
        "Service",
        "ServiceCIDR",
      ]);
      assertEquals(resources.map(({ phase }) => phase), Array(4).fill("watching"));
      if (scheme === "https") assertEquals(stage.fake.connections, 1);
    }, {
      scheme,
      prepare({ store }) {
        const spec = { clusterIP: "10.0.0.1" };
        const metadata = { name: "web", namespace: "default" };
        store.create({ apiVersion: "v1", kind: "Service", metadata, spec });
        store.create(SLICE);
        for (const name of ["node-1", "node-2"]) {
          store.create({ apiVersion: "v1", kind: "Node", metadata: { name } });
        }
        store.create({
          apiVersion: "networking.k8s.io/v1",
          kind: "ServiceCIDR",
          metadata: { name: "kubernetes" },
        });
      },
    }));
}

Deno.test("ApiSource.run() continues without ServiceCIDRs and Node that it may not read", () =>
  withSource(async (stage) => {
    await synced(stage);
    await isUnavailable(stage, "ServiceCIDR");
    await isUnavailable(stage, "Node");
  }, {
    prepare(fake) {
      fake.setMissing(collectionPath(SERVICE_CIDR), 404);
      fake.setMissing(NODES, 403);
    },
  }));

Deno.test("ApiSource.run() requests what was refused again over a new connection, without any failure", () =>
  withSource(async (stage) => {
    const { fake, source } = stage;
    await isUnavailable(stage, "Node");
    await synced(stage);
    fake.setMissing(NODES, undefined);
    fake.goaway();
    fake.forEachWatch((watch) => watch.end());
    await eventually("Node is followed", () => phaseOf(stage, "Node") === "watching");
    const failed = source.status().resources.filter(({ watchFailures }) => watchFailures > 0);
    assertEquals(failed, []);
  }, {
    prepare: (fake) => fake.setMissing(NODES, 403),
    timing: { refusalPatienceMs: 0 },
  }));

for (const streamingLists of [true, false]) {
  Deno.test(`ApiSource.run() keeps the former state of an object that can no longer be read (streaming lists: ${streamingLists})`, () =>
    withSource(async (stage) => {
      const { fake: { store }, fake, informers, reported, logger } = stage;
      const write = (name: string, clusterIP: unknown) =>
        store.update({
          apiVersion: "v1",
          kind: "Service",
          metadata: { name, namespace: "default" },
          spec: { clusterIP },
        });
      const address = () => informers.services.get("default/web")?.spec.clusterIP;
      await synced(stage);
      assertEquals(address(), "10.0.0.1");
      reported.length = 0;
      write("web", 1);
      write("new", 2);
      const problems = () =>
        logger.lines.filter(({ message }) => message.startsWith("Cannot read an object"))
          .map(({ fields }) => `${fields.object}: ${fields.message}`);
      await eventually("both are reported", () => problems().length === 2);
      const relists = () => source("Service")?.relists;
      const source = (kind: string) =>
        stage.source.status().resources.find((resource) => resource.kind === kind);
      fake.failNext({ status: 410, reason: "Expired", watch: true, path: "/api/v1/services" });
      fake.forEachWatch((watch) => watch.end(), "/api/v1/services");
      await eventually("it has a new list", () => relists() === 1);
      assertEquals([address(), reported], ["10.0.0.1", []]);
      assertEquals(problems(), [
        "default/web: The former state of the object stays in use: the field has to be a string",
        "default/new: The object is left out: the field has to be a string",
      ]);
      write("web", "10.0.0.2");
      await eventually("it is read again", () => address() === "10.0.0.2");
      write("web", 3);
      store.delete({
        apiVersion: "v1",
        kind: "Service",
        metadata: { name: "web", namespace: "default" },
      });
      await eventually("it is deleted", () => address() === undefined);
      assertEquals(reported, ["update Service default/web", "delete Service default/web"]);
    }, {
      streamingLists,
      prepare({ store }) {
        for (const [name, clusterIP] of [["web", "10.0.0.1"], ["new", "None"]]) {
          store.create({
            apiVersion: "v1",
            kind: "Service",
            metadata: { name: name!, namespace: "default" },
            spec: { clusterIP },
          });
        }
      },
    }));
}

Deno.test("ApiSource.run() lets Endpoints stand in for EndpointSlices until there are some", () =>
  withSource(async (stage) => {
    const { fake, informers, reported } = stage;
    await synced(stage);
    assertEquals(informers.endpoints.size, 1);
    assertEquals(reported.filter((line) => line.includes("Endpoint")), [
      "add Endpoints default/web",
      "synced Endpoints",
      "synced EndpointSlice",
    ]);
    fake.store.create(SLICE);
    fake.setMissing(collectionPath(ENDPOINT_SLICE), undefined);
    await eventually("the slices are there", () => informers.endpointSlices.size === 1);
    await eventually("the Endpoints are gone", () => informers.endpoints.size === 0);
    assertEquals(phaseOf(stage, "Endpoints"), undefined);
    const watched = () => {
      let found = 0;
      fake.forEachWatch(() => found++, "/api/v1/endpoints");
      return found;
    };
    await eventually("Endpoints are no longer watched", () => watched() === 0);
  }, {
    prepare(fake) {
      fake.setMissing(collectionPath(ENDPOINT_SLICE), 404);
      fake.store.create(ENDPOINTS);
    },
    timing: { unavailableRetryMs: 100 },
  }));

Deno.test("ApiSource.run() follows Endpoints next to EndpointSlices if that is asked for", () =>
  withSource(async (stage) => {
    await synced(stage);
    const { endpoints, endpointSlices } = stage.informers;
    assertEquals([endpoints.size, endpointSlices.size], [1, 1]);
    stage.fake.store.delete(ENDPOINTS);
    await eventually("the Endpoints are gone", () => endpoints.size === 0);
  }, {
    endpointsFallback: true,
    prepare({ store }) {
      store.create(ENDPOINTS);
      store.create(SLICE);
    },
  }));

for (
  const [path, code, kind] of [[collectionPath(ENDPOINT_SLICE), 404, "EndpointSlice"], [
    "/api/v1/endpoints",
    403,
    "Endpoints",
  ]] as const
) {
  Deno.test(`ApiSource.run() continues with both kinds of endpoints asked for and no ${kind}`, () =>
    withSource(async (stage) => {
      await synced(stage);
      const { endpoints, endpointSlices } = stage.informers;
      assertEquals(endpoints.size + endpointSlices.size, 1);
      await isUnavailable(stage, kind);
    }, {
      endpointsFallback: true,
      prepare(fake) {
        fake.setMissing(path, code);
        fake.store.create(ENDPOINTS);
        fake.store.create(SLICE);
      },
    }));
}

Deno.test("ApiSource reports that its server has an address that it should provide itself", () =>
  withSource(async (stage) => {
    await synced(stage);
    assertStringIncludes(
      stage.source.status().hint ?? "",
      "is the ClusterIP of Service default/kubernetes",
    );
    assertEquals(stage.logger.lines.filter(({ fields }) => "hint" in fields).length, 1);
  }, {
    prepare({ store }) {
      const metadata = { name: "kubernetes", namespace: "default" };
      const spec = { clusterIP: "127.0.0.1", clusterIPs: ["127.0.0.1"] };
      store.create({ apiVersion: "v1", kind: "Service", metadata, spec });
    },
  }));

Deno.test("ApiSource names the remedy when KUBERNETES_SERVICE_HOST does not answer", () =>
  withSource(async ({ source, logger }) => {
    await eventually("it is logged", () => logger.lines.some(({ fields }) => "hint" in fields));
    assertStringIncludes(source.status().hint ?? "", "--master");
    assertEquals(source.status().lastSignOfLifeMs, undefined);
  }, {
    auth(fake) {
      // A port without a listener: the fake's own, with another address of loopback.
      const auth = new StaticAuth(`https://127.0.0.9:${fake.port}`);
      auth.describe = () => ({
        server: auth.server,
        source: "in-cluster account",
        method: "token file",
      });
      return auth;
    },
  }));

Deno.test("ApiSource does not doubt the address of a kubeconfig that does not answer", () =>
  withSource(async ({ source }) => {
    const isFailing = () => source.status().resources.every(({ phase }) => phase === "backoff");
    await eventually("it failed", () => source.status().resources.length > 0 && isFailing());
    assertEquals(source.status().hint, undefined);
  }, { auth: (fake) => new StaticAuth(`https://127.0.0.9:${fake.port}`) }));
