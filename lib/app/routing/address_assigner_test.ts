import { assert, assertEquals } from "@std/assert";
import { loadBalancer, pool } from "../../../tests/support/builders/routed_objects.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import {
  FakeKubeClient,
  type StoredObject,
} from "../../../tests/support/fakes/fake_kube_client.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import type { RoutedService } from "../../api/kinds/routed_service.ts";
import { ApiError } from "../../kube/api_error.ts";
import type { KubeEvent } from "../../kube/event.ts";
import { changeHandler, Informer } from "../../kube/informer.ts";
import { parseCidr } from "../../net/cidr.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import type { AddressPool } from "../../routing/address_pool.ts";
import { AddressAssigner } from "./address_assigner.ts";

const POOL = pool("default", ["192.0.2.0/28"]);

/** A cluster, and the processes that may assign addresses in it. */
class Cluster {
  readonly clock = new FakeClock();
  readonly client = new FakeKubeClient();
  readonly events: KubeEvent[] = [];
  readonly logger = new MemoryLogger();
  readonly informers: Informer<RoutedService>[] = [];
  /** Whether watches deliver what changes. */
  isWatching = true;

  constructor(readonly pools: readonly AddressPool[] = [POOL]) {
    this.client.onChange = (_, object) => this.deliver(object);
  }

  deliver(object: StoredObject): void {
    if (!this.isWatching) return;
    for (const informer of this.informers) informer.upsert(object as unknown as RoutedService);
  }

  /** Creates or replaces a Service. */
  put(...parts: Parameters<typeof loadBalancer>): void {
    const service = loadBalancer(...parts);
    this.client.put(pathOf(service.metadata.name), service);
  }

  /** Starts a process that is the leader. */
  lead() {
    const informer = new Informer<RoutedService>();
    for (const object of this.client.objects.values()) {
      informer.upsert(object as unknown as RoutedService);
    }
    this.informers.push(informer);
    const { clock, logger, client } = this;
    const events = { record: (event: KubeEvent) => void this.events.push(event) };
    const assigner = new AddressAssigner({ clock, logger, random: () => 0.5, events }, {
      settings: {
        ...{ pools: this.pools, loadBalancerClasses: ["ours"], defaultLoadBalancerClass: true },
      },
      services: informer,
    });
    informer.addHandler(
      changeHandler((previous, current) => assigner.onService(current ?? previous!)),
    );
    const end = new AbortController();
    const leading = assigner.lead(client, end.signal);
    const stop = async () => {
      end.abort();
      await leading;
    };
    return { assigner, informer, stop };
  }

  /** The address of each Service. */
  get assigned(): Readonly<Record<string, readonly string[]>> {
    return Object.fromEntries(
      [...this.client.objects.values()].map((object) => {
        const { metadata: { name }, status } = object as unknown as RoutedService;
        return [name, status?.loadBalancer?.ingress?.map(({ ip }) => ip ?? "") ?? []];
      }),
    );
  }
}

function pathOf(name: string): string {
  return `/api/v1/namespaces/default/services/${name}`;
}

Deno.test("AddressAssigner writes one status for each Service, and nothing again", async () => {
  const cluster = new Cluster();
  const { client, clock } = cluster;
  for (const name of ["a", "b", "c"]) cluster.put({ name });
  const { stop } = cluster.lead();
  await clock.advance(2_000);
  assertEquals(cluster.assigned, { a: ["192.0.2.0"], b: ["192.0.2.1"], c: ["192.0.2.2"] });
  assertEquals(client.requests.map(({ path }) => path).sort(), [
    ...["a", "b", "c"].map((name) => `${pathOf(name)}/status`),
  ]);
  assertEquals(cluster.events.map(({ reason, note }) => [reason, note])[0], [
    "LoadBalancerAddressAssigned",
    "Assigned 192.0.2.0",
  ]);
  cluster.put({ name: "a", addresses: ["192.0.2.0"], labels: { changed: "yes" } });
  await clock.advance(60_000);
  assertEquals(client.requests.length, 3, "another change needs no write");
  await stop();
});

Deno.test("AddressAssigner does not write a status whose addresses are only spelled or ordered otherwise", async () => {
  const cluster = new Cluster([pool("both", ["192.0.2.0/28", "2001:db8::/120"])]);
  const spec = { ipFamilies: ["IPv4" as const, "IPv6" as const] };
  cluster.put({ name: "a", spec, addresses: ["2001:DB8::1", "192.0.2.1"] });
  const { stop } = cluster.lead();
  await cluster.clock.advance(2_000);
  assertEquals(cluster.client.requests.length, 0);
  cluster.put({ name: "a", spec, addresses: ["2001:DB8::1", "192.0.2.1", "192.0.2.2"] });
  await cluster.clock.advance(2_000);
  assertEquals(cluster.assigned, { a: ["192.0.2.1", "2001:db8::1"] });
  await stop();
});

Deno.test("AddressAssigner writes ipMode VIP in place of Proxy, which no node would serve", async () => {
  const cluster = new Cluster();
  const modesOf = () =>
    [...cluster.client.objects.values()].flatMap((object) =>
      (object as unknown as RoutedService).status!.loadBalancer!.ingress!.map(({ ipMode }) =>
        ipMode
      )
    );
  const named = (ipMode?: string) => {
    const service = loadBalancer({ name: "a" });
    const ingress = [{ ip: "192.0.2.0", ...(ipMode && { ipMode }) }];
    cluster.client.put(pathOf("a"), { ...service, status: { loadBalancer: { ingress } } });
  };
  named("Proxy");
  const { stop } = cluster.lead();
  await cluster.clock.advance(2_000);
  assertEquals(modesOf(), ["VIP"]);
  // API servers before 1.29 store no mode.
  named();
  await cluster.clock.advance(60_000);
  assertEquals([modesOf(), cluster.client.requests.length], [[undefined], 1]);
  await stop();
});

Deno.test("AddressAssigner reports a refusal once, also when the Service changes otherwise", async () => {
  const cluster = new Cluster([pool("small", ["192.0.2.0"])]);
  const { clock } = cluster;
  cluster.put({ name: "a" });
  cluster.put({ name: "b", createdAt: "2026-01-02T00:00:00Z" });
  const { stop } = cluster.lead();
  await clock.advance(2_000);
  cluster.put({ name: "b", createdAt: "2026-01-02T00:00:00Z", labels: { x: "y" } });
  await clock.advance(2_000);
  const warnings = cluster.events.filter(({ type }) => type === "Warning");
  assertEquals(warnings.map(({ reason, note, regarding }) => [reason, note, regarding.name]), [
    ["LoadBalancerPoolExhausted", "Pool 'small' has no free address of IPv4", "b"],
  ]);
  await stop();
});

Deno.test("AddressAssigner decides again after a conflict, by the newer Service", async () => {
  const cluster = new Cluster();
  const { client, clock } = cluster;
  cluster.put({ name: "a" });
  const { stop } = cluster.lead();
  let isFirst = true;
  client.before = () => {
    // Another client writes between the decision and the request.
    if (isFirst) {
      cluster.put({ name: "a", annotations: { "kube-relay.io/load-balancer-ips": "192.0.2.7" } });
    }
    isFirst = false;
    return Promise.resolve();
  };
  await clock.advance(2_000);
  assertEquals(cluster.assigned, { a: ["192.0.2.7"] });
  assertEquals(client.requests.map(({ outcome }) => outcome), ["refused", "done"]);
  await stop();
});

Deno.test("AddressAssigner waits for the watch after a conflict, and does not ask in a loop", async () => {
  const cluster = new Cluster();
  const { client, clock } = cluster;
  cluster.put({ name: "a" });
  const { stop } = cluster.lead();
  cluster.isWatching = false;
  cluster.put({ name: "a", labels: { x: "y" } });
  await clock.advance(30_000);
  assertEquals(client.requests.length, 1);
  cluster.isWatching = true;
  cluster.deliver(client.objects.get(pathOf("a"))!);
  await clock.advance(100);
  assertEquals(cluster.assigned, { a: ["192.0.2.0"] });
  await stop();
});

Deno.test("AddressAssigner tries again, ever more slowly, while the API server fails", async () => {
  const cluster = new Cluster();
  const { client, clock, logger } = cluster;
  for (const name of ["a", "b", "c", "d", "e", "f"]) cluster.put({ name });
  const { assigner, stop } = cluster.lead();
  client.isAway = true;
  await clock.advance(120_000);
  assert(client.requests.length < 40, `${client.requests.length} requests`);
  assert(assigner.problem?.includes("no route"));
  client.isAway = false;
  client.failures.push(new ApiError("forbidden", { status: 403 }));
  await clock.advance(200_000);
  assertEquals(Object.values(cluster.assigned).flat().length, 6);
  assertEquals(assigner.problem, undefined);
  assertEquals(logger.lines.filter(({ level }) => level === "warn").length <= 2, true);
  await stop();
});

/** Lists 1,000 Nodes within two seconds; returns how often their ranges of pods are read. */
async function readsOfRanges({ assigner, clock }: {
  readonly assigner: AddressAssigner;
  readonly clock: FakeClock;
}): Promise<number> {
  let reads = 0;
  for (let number = 0; number < 1000; number++) {
    assigner.setNode(`n${number}`, {
      addresses: [parseIpAddress(`198.51.${number >> 8}.${number & 255}`)],
      get podCidrs() {
        reads++;
        return [parseCidr(`10.${number >> 8}.${number & 255}.0/24`)];
      },
    });
    if (number % 50 === 0) await clock.advance(100);
  }
  return reads;
}

Deno.test("AddressAssigner takes the ranges of a list of Nodes out of its pools together", async () => {
  const cluster = new Cluster([pool("large", ["10.0.0.0/8"])]);
  const { clock } = cluster;
  cluster.put({ name: "a" });
  const { assigner, stop } = cluster.lead();
  await clock.advance(0);
  const reads = await readsOfRanges({ assigner, clock });
  assert(reads < 20_000, `${reads} reads of 1,000 nodes`);
  await clock.advance(2_000);
  assertEquals(cluster.assigned, { a: ["10.3.232.0"] });
  await stop();
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("AddressAssigner assigns no address of a Node that has just come", async () => {
  const cluster = new Cluster();
  const { clock } = cluster;
  const { assigner, stop } = cluster.lead();
  await clock.advance(2_000);
  assigner.setNode("n", { addresses: [], podCidrs: [parseCidr("192.0.2.0/31")] });
  cluster.put({ name: "a" });
  await clock.advance(2_000);
  assertEquals(cluster.assigned, { a: ["192.0.2.2"] });
  await stop();
  assigner.setNode("m", { addresses: [], podCidrs: [parseCidr("192.0.2.2/31")] });
  cluster.put({ name: "b" });
  assertEquals(clock.pendingTimers, 0, "another process assigns");
  const leading = new AbortController();
  const led = assigner.lead(cluster.client, leading.signal);
  await clock.advance(2_000);
  assertEquals(cluster.assigned, { a: ["192.0.2.2"], b: ["192.0.2.4"] });
  leading.abort();
  await led;
});

Deno.test("AddressAssigner leaves ranges of other use out of its pools, also those that come later", async () => {
  const cluster = new Cluster();
  const { client, clock, logger } = cluster;
  for (const name of ["a", "b"]) cluster.put({ name });
  const { assigner, stop } = cluster.lead();
  assigner.setTaken(new Map([[parseCidr("192.0.2.0/31"), "a range of pods"]]));
  await clock.advance(2_000);
  assertEquals(cluster.assigned, { a: ["192.0.2.2"], b: ["192.0.2.3"] });
  cluster.put({ name: "c" });
  assigner.setTaken(new Map([[parseCidr("192.0.2.0/29"), "a range of pods"]]));
  await clock.advance(2_000);
  assertEquals(cluster.assigned.c, ["192.0.2.8"], "the others keep what their status has");
  assertEquals([cluster.assigned.a, client.requests.length], [["192.0.2.2"], 3]);
  assertEquals(logger.lines.filter(({ level }) => level === "warn").length, 2);
  await stop();
});

Deno.test("AddressAssigner: 10,000 Services need 10,000 writes, four at a time, and a change needs one", async () => {
  const cluster = new Cluster([pool("large", ["10.9.0.0/16"])]);
  const { client, clock } = cluster;
  for (let index = 0; index < 10_000; index++) cluster.put({ name: `s${index}` });
  const { stop } = cluster.lead();
  let [running, most] = [0, 0];
  client.before = async () => {
    most = Math.max(most, ++running);
    await Promise.resolve();
    running--;
  };
  await clock.advance(2_000);
  while (client.requests.length < 10_000) await clock.advance(1);
  assertEquals([client.requests.length, most], [10_000, 4]);
  cluster.put({ name: "one-more" });
  await clock.advance(100);
  assertEquals(client.requests.length, 10_001);
  await stop();
});

Deno.test("AddressAssigner: Services whose status the API server refuses delay no other Service", async () => {
  const cluster = new Cluster();
  const { client, clock } = cluster;
  const refused = ["a", "b", "c", "d", "e"];
  for (const name of refused) cluster.put({ name });
  const { assigner, stop } = cluster.lead();
  client.before = (_, path) =>
    refused.some((name) => path.startsWith(`${pathOf(name)}/`))
      ? Promise.reject(new ApiError("a webhook denied the request", { status: 422 }))
      : Promise.resolve();
  await clock.advance(60_000);
  cluster.put({ name: "good", createdAt: "2026-01-02T00:00:00Z" });
  await clock.advance(100);
  assertEquals(cluster.assigned.good, ["192.0.2.5"]);
  assert(assigner.problem?.includes("webhook"), assigner.problem);
  const before = client.requests.length;
  await clock.advance(600_000);
  assert(client.requests.length - before <= 60, `${client.requests.length - before} requests`);
  client.before = () => Promise.resolve();
  await clock.advance(120_000);
  assertEquals(Object.values(cluster.assigned).flat().length, 6);
  assertEquals(assigner.problem, undefined);
  await stop();
});

/** Another controller undoes each write of the Service a, for ten minutes: few writes follow. */
async function contend(cluster: Cluster): Promise<void> {
  const { client, clock } = cluster;
  const { onChange } = client;
  client.onChange = (path, object) => {
    onChange(path, object);
    const [address] = cluster.assigned.a!;
    if (address === "192.0.2.0") cluster.put({ name: "a", addresses: ["192.0.2.9"] });
  };
  for (let second = 0; second < 600; second++) await clock.advance(1_000);
  assert(client.requests.length > 5, "the first ones are immediate");
  assert(client.requests.length < 25, `${client.requests.length} requests in ten minutes`);
}

Deno.test("AddressAssigner does not fight with another controller that writes the status", async () => {
  const cluster = new Cluster();
  const { client, clock, logger } = cluster;
  cluster.put({ name: "a" });
  const { stop } = cluster.lead();
  const { onChange } = client;
  await contend(cluster);
  const warnings = logger.lines.filter(({ level }) => level === "warn");
  assert(warnings.length > 0 && warnings.length <= 3, `${warnings.length} lines`);
  client.onChange = onChange;
  await clock.advance(120_000);
  assertEquals(cluster.assigned, { a: ["192.0.2.0"] });
  await stop();
});

Deno.test("AddressAssigner writes no faster, and leaves no timer, if answers come after the events of writes", async () => {
  const cluster = new Cluster();
  const { client, clock } = cluster;
  cluster.put({ name: "a" });
  const patch = client.patch.bind(client);
  // The API server has written when the process ends, and its answer is on the way.
  client.patch = async (...args) => {
    const answer = await patch(...args);
    await clock.sleep(500);
    return answer;
  };
  const { stop } = cluster.lead();
  await contend(cluster);
  const { length } = client.requests;
  while (client.requests.length === length) await clock.advance(1_000);
  await Promise.all([stop(), clock.advance(1_000)]);
  await clock.advance(0);
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("AddressAssigner reports an assignment once, also while its status cannot be written or is cleared", async () => {
  const cluster = new Cluster([pool("default", ["192.0.2.0/28"]), pool("other", ["198.51.100.1"])]);
  const { client, clock } = cluster;
  const assigned = () =>
    cluster.events.filter(({ type }) => type === "Normal").map(({ note }) => note);
  cluster.put({ name: "a" });
  client.before = () => Promise.reject(new ApiError("denied", { status: 422 }));
  const { assigner, stop } = cluster.lead();
  await clock.advance(2_000);
  for (const label of ["x", "y", "z"]) {
    cluster.put({ name: "a", labels: { label } });
    await clock.advance(1_000);
  }
  assertEquals(assigned(), ["Assigned 192.0.2.0"]);
  client.before = () => Promise.resolve();
  await clock.advance(120_000);
  assertEquals(cluster.assigned, { a: ["192.0.2.0"] });
  for (let time = 0; time < 3; time++) {
    cluster.put({ name: "a" });
    await clock.advance(1_000);
    assertEquals(cluster.assigned, { a: ["192.0.2.0"] });
  }
  assertEquals(assigned(), ["Assigned 192.0.2.0"]);
  assigner.setTaken(new Map([[parseCidr("10.0.0.0/8"), "a range of pods"]]));
  await clock.advance(2_000);
  assertEquals(assigned(), ["Assigned 192.0.2.0"], "other settings assign nothing new");
  const annotations = { "kube-relay.io/load-balancer-ips": "198.51.100.1" };
  cluster.put({ name: "a", annotations, addresses: ["192.0.2.0"] });
  await clock.advance(1_000);
  cluster.put({ name: "a", addresses: ["198.51.100.1"] });
  await clock.advance(1_000);
  assertEquals(assigned(), ["Assigned 192.0.2.0", "Assigned 198.51.100.1"]);
  await stop();
});
