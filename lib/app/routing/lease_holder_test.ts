import { assert, assertEquals } from "@std/assert";
import { randomFrom } from "../../../tests/support/builders/seeded_random.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeKubeClient } from "../../../tests/support/fakes/fake_kube_client.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import type { Lease } from "../../api/kinds/lease.ts";
import { ApiError } from "../../kube/api_error.ts";
import { LeaseHolder } from "./lease_holder.ts";

const PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l";

/** A candidate, which sees the Lease as a watch has it. */
function startCandidate(holder: string, { clock, client, isOwn = false }: {
  readonly clock: FakeClock;
  readonly client: FakeKubeClient;
  readonly isOwn?: boolean;
}) {
  const logger = new MemoryLogger();
  const held: boolean[] = [];
  const lease = new LeaseHolder({ clock, logger }, {
    ...{ namespace: "kube-system", name: "l", holder, durationSeconds: 3, isOwn },
    onHeld: (isHeld) => void held.push(isHeld),
  });
  const end = new AbortController();
  const running = lease.run(client, end.signal);
  const stop = async () => {
    end.abort();
    await running;
  };
  return { lease, held, logger, stop };
}

function createEdges() {
  const [clock, client] = [new FakeClock(), new FakeKubeClient()];
  const holder = () =>
    (client.objects.get(PATH)?.spec as Lease["spec"] | undefined)?.holderIdentity;
  return { clock, client, holder };
}

Deno.test("LeaseHolder creates its Lease, and renews it once a second by one request", async () => {
  const edges = createEdges();
  const { clock, client } = edges;
  const { lease, held, stop } = startCandidate("a", edges);
  client.onChange = (_, object) => lease.observe(object as unknown as Lease);
  await clock.advance(10_000);
  assertEquals([lease.isHeld, held], [true, [true]]);
  assertEquals(client.requests.map(({ verb }) => verb).slice(0, 3), ["create", "patch", "patch"]);
  assert(client.requests.length <= 11, `${client.requests.length} requests`);
  assertEquals(client.objects.get(PATH)?.metadata.labels, { "kube-relay.io/lease": "true" });
  await stop();
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("LeaseHolder: one of two candidates holds the Lease, and the other follows a release at once", async () => {
  const edges = createEdges();
  const { clock, client, holder } = edges;
  const [one, two] = [startCandidate("a", edges), startCandidate("b", edges)];
  client.onChange = (_, object) => {
    for (const { lease } of [one, two]) lease.observe(object as unknown as Lease);
  };
  await clock.advance(20_000);
  assertEquals([one.held, two.held], [[true], []]);
  const waiting = client.requests.length;
  await clock.advance(10_000);
  assert(client.requests.length - waiting <= 11, "the second candidate asks for nothing");
  await one.stop();
  await one.lease.release(client, new AbortController().signal);
  await clock.advance(0);
  assertEquals([holder(), two.lease.isHeld, one.held], ["b", true, [true, false]]);
  await two.stop();
});

Deno.test("LeaseHolder holds the Lease through conflicts and lost requests, as long as it lasts", async () => {
  const edges = createEdges();
  const { clock, client } = edges;
  const { lease, held, logger, stop } = startCandidate("a", edges);
  await clock.advance(500);
  client.put(PATH, client.objects.get(PATH)!);
  await clock.advance(2_000);
  assertEquals(held, [true], "a conflict is read and tried again");
  client.objects.delete(PATH);
  await clock.advance(2_000);
  assert(client.objects.has(PATH), "a deleted Lease is created again");
  client.isAway = true;
  await clock.advance(1_900);
  assertEquals(held.at(-1), true, "it has not expired");
  await clock.advance(1_200);
  assertEquals([lease.isHeld, held.at(-1)], [false, false]);
  assert(lease.problem?.includes("no route"));
  client.isAway = false;
  await clock.advance(1_000);
  assertEquals([lease.isHeld, lease.problem], [true, undefined]);
  const lines = logger.lines.map(({ message }) => message);
  assertEquals(lines, ["Cannot write a Lease; trying again", "Lease can be written again"]);
  await stop();
});

Deno.test("LeaseHolder reports that a Lease expired although a request hangs", async () => {
  const edges = createEdges();
  const { clock, client } = edges;
  const { held, stop } = startCandidate("a", edges);
  await clock.advance(500);
  client.before = () => new Promise(() => {});
  await clock.advance(2_499);
  assertEquals(held, [true]);
  await clock.advance(1);
  assertEquals(held, [true, false], "exactly when it expires");
  client.before = () => Promise.resolve();
  await stop();
});

Deno.test("LeaseHolder counts the duration from the moment of its decision, if the process stalls after it", async () => {
  const edges = createEdges();
  const { clock, client } = edges;
  const read = clock.now.bind(clock);
  let reads = 0;
  clock.now = () => {
    const now = read();
    if (++reads === 1) clock.stall(500);
    return now;
  };
  const { held, stop } = startCandidate("a", edges);
  await clock.advance(0);
  client.before = () => new Promise(() => {});
  await clock.advance(2_499);
  assertEquals(held, [true]);
  await clock.advance(1);
  assertEquals(held, [true, false]);
  client.before = () => Promise.resolve();
  await stop();
});

Deno.test("LeaseHolder repeats a request that hung as soon as its time is over", async () => {
  const edges = createEdges();
  const { clock, client } = edges;
  const renewals: number[] = [];
  client.onChange = () => renewals.push(clock.now());
  const { stop } = startCandidate("a", edges);
  await clock.advance(500);
  let requests = 0;
  client.before = () => ++requests === 1 ? new Promise(() => {}) : Promise.resolve();
  for (let step = 0; step < 60; step++) await clock.advance(100);
  const gaps = renewals.slice(1).map((at, index) => at - renewals[index]!);
  assertEquals(gaps, [2_000, 1_000, 1_000, 1_000, 1_000]);
  await stop();
});

Deno.test("LeaseHolder reports an unknown holder of a Lease of its own, and takes it within a minute", async () => {
  const edges = createEdges();
  const { clock, client } = edges;
  const spec = {
    ...{ holderIdentity: "x", leaseDurationSeconds: 2_000_000_000, renewTime: "nonsense" },
    leaseTransitions: 2 ** 31 - 1,
  };
  const metadata = { name: "l", namespace: "kube-system" };
  const intruder = client.put(PATH, { metadata, spec });
  const { lease, logger, stop } = startCandidate("a", { ...edges, isOwn: true });
  lease.observe(intruder as unknown as Lease);
  await clock.advance(3_000);
  assertEquals(lease.problem, "'x' holds it: is another node named 'a', or was the Lease edited?");
  await clock.advance(65_000);
  assertEquals([lease.isHeld, lease.problem], [true, undefined]);
  const { leaseTransitions } = client.objects.get(PATH)!.spec as Lease["spec"];
  assertEquals(leaseTransitions, 2 ** 31 - 1, "the API takes 32 bits");
  const { length } = logger.lines.filter(({ level }) => level === "warn");
  assertEquals(length, 1);
  await stop();
});

Deno.test("LeaseHolder reports conflicts without an end once, and asks at a steady pace", async () => {
  const edges = createEdges();
  const { clock, client } = edges;
  const { lease, logger, stop } = startCandidate("a", edges);
  await clock.advance(1_000);
  client.before = (verb) =>
    verb === "patch"
      ? Promise.reject(new ApiError("it was modified", { status: 409 }))
      : Promise.resolve();
  const before = client.requests.length;
  for (let second = 0; second < 60; second++) await clock.advance(1_000);
  assertEquals(lease.isHeld, false);
  assert(lease.problem?.includes("it was modified"), lease.problem);
  const { length } = logger.lines.filter(({ level }) => level === "warn");
  assertEquals(length, 1);
  assert(client.requests.length - before <= 250, `${client.requests.length - before} requests`);
  client.before = () => Promise.resolve();
  await clock.advance(3_000);
  assertEquals([lease.isHeld, lease.problem], [true, undefined]);
  await stop();
});

Deno.test("LeaseHolder: at most one process holds the Lease, whatever is late or lost", async () => {
  for (let seed = 1; seed <= 40; seed++) {
    const random = randomFrom(seed);
    const edges = createEdges();
    const { clock, client } = edges;
    const late = () => clock.sleep(random() < 0.3 ? 900 * random() : 0);
    /** Requests and their answers are late, and some answers are lost. */
    const slow = async (send: () => Promise<unknown>) => {
      await late();
      const answer = await send();
      await late();
      if (random() < 0.2) throw new Error(`lost, seed ${seed}`);
      return answer;
    };
    const lossy = {
      get: (...args: Parameters<typeof client.get>) => slow(() => client.get(...args)),
      create: (...args: Parameters<typeof client.create>) => slow(() => client.create(...args)),
      patch: (...args: Parameters<typeof client.patch>) => slow(() => client.patch(...args)),
    } as FakeKubeClient;
    const candidates = ["a", "b", "c"].map((name) =>
      startCandidate(name, { clock, client: lossy })
    );
    client.onChange = (_, object) => {
      for (const { lease } of candidates) {
        if (random() < 0.7) lease.observe(object as unknown as Lease);
      }
    };
    const holders = new Set<number>();
    for (let step = 0; step < 600; step++) {
      const { lease } = candidates[Math.floor(3 * random())]!;
      if (random() < 0.03) lease.isWanted = !lease.isWanted;
      await clock.advance(100 * random());
      const held = [0, 1, 2].filter((index) => candidates[index]!.lease.isHeld);
      assert(held.length <= 1, `${held} hold it, seed ${seed}`);
      held.forEach((index) => holders.add(index));
    }
    assert(holders.size > 0, `no one ever held it, seed ${seed}`);
    await Promise.all([...candidates.map(({ stop }) => stop()), clock.advance(2_000)]);
  }
});

Deno.test("LeaseHolder takes a Lease over after it saw no renewal for its duration, and not before", async () => {
  for (const leaseDurationSeconds of [0, 1, 3]) {
    const edges = createEdges();
    const { clock, client, holder } = edges;
    const spec = { holderIdentity: "x", leaseDurationSeconds, renewTime: "1", leaseTransitions: 4 };
    client.put(PATH, { metadata: { name: "l", namespace: "kube-system" }, spec });
    const { lease, stop } = startCandidate("a", edges);
    const observe = () => lease.observe(client.objects.get(PATH) as unknown as Lease);
    observe();
    await clock.advance(2_000);
    client.put(PATH, { ...client.objects.get(PATH), spec: { ...spec, holderIdentity: "y" } });
    observe();
    await clock.advance(2_999);
    assertEquals(holder(), "y", "a new holder counts from when it was seen");
    await clock.advance(1);
    const { leaseTransitions } = client.objects.get(PATH)!.spec as Lease["spec"];
    assertEquals([holder(), leaseTransitions], ["a", 5]);
    await stop();
  }
});

Deno.test("LeaseHolder does not hold a Lease again by the late answer to a renewal before its release", async () => {
  const edges = createEdges();
  const { clock, client, holder } = edges;
  let answered = Promise.resolve();
  const late = {
    create: (...args: Parameters<typeof client.create>) => client.create(...args),
    patch: async (...args: Parameters<typeof client.patch>) => {
      const answer = await client.patch(...args);
      await answered;
      return answer;
    },
  } as FakeKubeClient;
  const { lease, held, stop } = startCandidate("a", { ...edges, client: late });
  await clock.advance(500);
  const answer = Promise.withResolvers<void>();
  answered = answer.promise;
  await clock.advance(500);
  await lease.release(client, new AbortController().signal);
  const ending = stop();
  answer.resolve();
  await ending;
  assertEquals([holder(), lease.isHeld, held], ["", false, [true, false]]);
});

Deno.test("LeaseHolder follows what a watch shows of its Lease, but no older version", async () => {
  for (const after of ["another holder", "a deletion"]) {
    const edges = createEdges();
    const { clock, client } = edges;
    const { lease, held, stop } = startCandidate("a", edges);
    await clock.advance(500);
    const { metadata, spec } = client.objects.get(PATH) as unknown as Lease;
    const taken = { ...spec, holderIdentity: "b" };
    lease.observe({ metadata: { ...metadata, resourceVersion: "99" }, spec: taken });
    assertEquals(held, [true]);
    lease.setDuration(30);
    await clock.advance(0);
    const { leaseDurationSeconds } = client.objects.get(PATH)!.spec as Lease["spec"];
    assertEquals(leaseDurationSeconds, 30, "others know it at once");
    const later = { metadata: { ...metadata, resourceVersion: "999" }, spec: taken };
    lease.observe(after === "a deletion" ? undefined : later);
    assertEquals([lease.isHeld, held], [false, [true, false]], after);
    await stop();
  }
});
