import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import type { ServiceKey } from "../../lib/proxy/service_port_name.ts";
import { AFFINITY_BYTES, AffinityTable } from "./affinity_table.ts";
import { ConnectionLimits } from "./forwarder.ts";
import { countKey, createCountMemory, SharedCounts } from "./shared_counts.ts";

const THREADS = 3;
const SERVICE = "default/web" as ServiceKey;

interface Connection {
  counted: ReturnType<typeof countKey> | undefined;
  client?: string;
}

function threadsOf(memory = createCountMemory(1024, THREADS)): readonly SharedCounts[] {
  return Array.from({ length: THREADS }, (_, thread) => new SharedCounts(memory, thread));
}

/** The limits of one Service in each thread. */
function limitsIn(
  threads: readonly SharedCounts[],
  settings: Parameters<ConnectionLimits["update"]>[0],
): readonly ConnectionLimits[] {
  return threads.map((counts) => {
    const limits = new ConnectionLimits(() => counts, SERVICE);
    limits.update(settings, []);
    return limits;
  });
}

Deno.test("ConnectionLimits let no more in than each limit allows, in all threads together, and forget a thread that ends", () => {
  const steps = fc.array(
    fc.record({
      thread: fc.nat(THREADS - 1),
      client: fc.constantFrom("10.0.0.1", "10.0.0.2", "10.0.0.3"),
      what: fc.constantFrom("admit", "admit", "admit", "leave", "leave", "end"),
    }),
    { maxLength: 200 },
  );
  const settings = fc.record({
    maxConnections: fc.integer({ min: 1, max: 6 }),
    maxPerClient: fc.integer({ min: 1, max: 4 }),
  });
  fc.assert(
    fc.property(steps, settings, (list, settings) => {
      const threads = threadsOf();
      const limits = limitsIn(threads, settings);
      let open: { readonly thread: number; readonly connection: Connection }[] = [];
      for (const { thread, client, what } of list) {
        if (what === "end") {
          threads[thread]!.forgetOwn();
          open = open.filter((each) => each.thread !== thread);
          continue;
        }
        const isOwn = (each: (typeof open)[number]) =>
          each.connection.client === client && (what === "admit" || each.thread === thread);
        if (what === "leave") {
          const index = open.findIndex(isOwn);
          const [left] = index < 0 ? [] : open.splice(index, 1);
          if (left) limits[thread]!.leave(left.connection);
          continue;
        }
        const connection: Connection = { counted: undefined, client };
        const reached = limits[thread]!.admit(connection, client, 0);
        const expected = open.length >= settings.maxConnections
          ? { limit: "max-connections", bound: settings.maxConnections }
          : open.filter(isOwn).length >= settings.maxPerClient
          ? { limit: "max-connections-per-client", bound: settings.maxPerClient }
          : undefined;
        assertEquals(reached as unknown, expected);
        if (reached === undefined) open.push({ thread, connection });
      }
    }),
    { seed: 18 },
  );
});

Deno.test("ConnectionLimits refill the rate of all threads with time, up to one second's worth", () => {
  const limits = limitsIn(threadsOf(), { maxPerSecond: 10 });
  const admitted = (now: number) => {
    let count = 0;
    while (limits[count % THREADS]!.admit({ counted: undefined }, "c", now) === undefined) count++;
    return count;
  };
  assertEquals([0, 0, 99, 100, 350, 60_000].map(admitted), [10, 0, 0, 1, 2, 10]);
});

Deno.test("ConnectionLimits.update() keeps the counts and neither gives nor takes a burst", () => {
  const [limits] = limitsIn(threadsOf(), { maxPerClient: 2, maxPerSecond: 2 });
  const admit = () => limits!.admit({ counted: undefined }, "c", 0)?.limit;
  assertEquals([admit(), admit()], [undefined, undefined]);
  limits!.update({ maxPerClient: 3, maxPerSecond: 2 }, []);
  assertEquals(admit(), "max-new-connections-per-second");
  limits!.update({ maxPerClient: 3 }, []);
  assertEquals([admit(), admit()], [undefined, "max-connections-per-client"]);
});

Deno.test("ConnectionLimits.update() counts what was open before, and takes it back", () => {
  const [limits, other] = limitsIn(threadsOf(), {});
  const open: Connection[] = [{ counted: undefined }, { counted: undefined }];
  limits!.update({ maxConnections: 2 }, open);
  other!.update({ maxConnections: 2 }, []);
  const admit = () => other!.admit({ counted: undefined }, "c", 0)?.limit;
  assertEquals(admit(), "max-connections");
  limits!.update({}, open);
  assertEquals([admit(), admit(), admit()], [undefined, undefined, "max-connections"]);
});

Deno.test("SharedCounts refuses what it has no place for, and loses nothing that it has", () => {
  const [counts] = threadsOf();
  const keys = Array.from({ length: 20_000 }, (_, index) => countKey(`client ${index}`));
  const counted = keys.filter((key) => counts!.add(key));
  assert(counted.length > 3500 && counted.length <= 4096, `${counted.length} of 4096 cells`);
  assert(counted.every((key) => counts!.of(key) === 1));
  for (const key of counted) counts!.remove(key);
  assert(keys.every((key) => counts!.of(key) === 0));
  assert(keys.slice(0, 1000).every((key) => counts!.add(key, 1) && !counts!.add(key, 1)));
});

Deno.test("SharedCounts never lets in more than there may be while real threads count the same", async () => {
  const memory = createCountMemory(1024, THREADS);
  const module = new URL("./shared_counts.ts", import.meta.url).href;
  const program = `
    import { countKey, SharedCounts } from "${module}";
    onmessage = ({ data: { memory, held, thread, rounds } }) => {
      const holders = new Int32Array(held);
      const counts = new SharedCounts(memory, thread);
      const keys = Array.from({ length: 50 }, (_, index) => countKey("key " + index));
      let most = 0;
      for (let round = 0; round < rounds; round++) {
        for (const [index, key] of keys.entries()) {
          if (!counts.add(key, 2)) continue;
          most = Math.max(most, 1 + Atomics.add(holders, index, 1));
          Atomics.sub(holders, index, 1);
          counts.remove(key);
        }
      }
      for (const key of keys) counts.add(key, 2);
      postMessage(most);
    };`;
  const url = `data:application/typescript,${encodeURIComponent(program)}`;
  const held = new SharedArrayBuffer(50 * Int32Array.BYTES_PER_ELEMENT);
  const workers = Array.from({ length: THREADS }, () => new Worker(url, { type: "module" }));
  const most = await Promise.all(workers.map((worker, thread) =>
    new Promise<number>((resolve) => {
      worker.onmessage = ({ data }) => resolve(data);
      worker.postMessage({ memory, held, thread, rounds: 2_000 });
    })
  ));
  for (const worker of workers) worker.terminate();
  assert(most.every((each) => each <= 2), `${most}`);
  const threads = threadsOf(memory);
  const keys = Array.from({ length: 50 }, (_, index) => countKey(`key ${index}`));
  // Two that came in the same moment may both have been refused.
  for (const key of keys) while (threads[0]!.add(key, 2));
  assertEquals(keys.map((key) => threads[0]!.of(key)), Array(50).fill(2));
  for (const counts of threads) counts.forgetOwn();
  assertEquals(keys.map((key) => threads[0]!.of(key)), Array(50).fill(0));
});

Deno.test("SharedCounts keeps nothing of a thread that ends at any step of counting", () => {
  const { load, add } = Atomics;
  for (let end = 1; end < 20; end++) {
    const memory = createCountMemory(1024, THREADS);
    const [one, two] = threadsOf(memory);
    const key = countKey("default/web");
    two!.add(key);
    let steps = 0;
    const step = () => {
      if (++steps === end) throw new Error("terminated");
    };
    try {
      Atomics.load = ((array: Int32Array, index: number) => (step(), load(array, index))) as never;
      Atomics.add = ((array: Int32Array, index: number, value: number) => {
        step();
        return add(array, index, value);
      }) as never;
      two!.remove(key);
      while (two!.add(key, 3));
    } catch {
      // It has ended.
    } finally {
      Object.assign(Atomics, { load, add });
    }
    two!.forgetOwn();
    assertEquals([one!.of(key), one!.add(key, 1), one!.add(key, 1)], [0, true, false], `${end}`);
  }
});

Deno.test("AffinityTable.bind() leaves a client with the endpoint that another thread was first to give it", () => {
  const memory = new SharedArrayBuffer(AFFINITY_BYTES);
  const [one, two] = [new AffinityTable(memory), new AffinityTable(memory)];
  const found = [one, two].map((table) => table.find("10.0.0.1", 500, 1600));
  assertEquals([one.bind(found[0]!, 7, 500), two.bind(found[1]!, 8, 500)], [true, false]);
  // The clock of the other thread is a little behind.
  assertEquals(two.find("10.0.0.1", 300, 1600).endpoint, 7);
  assertEquals(two.find("10.0.0.1", 2100, 1600).endpoint, undefined);
});

Deno.test("AffinityTable remembers nearly all of 30,000 clients", () => {
  const table = new AffinityTable();
  const clients = Array.from({ length: 30_000 }, (_, index) => `10.0.${index >> 8}.${index & 255}`);
  for (const client of clients) table.bind(table.find(client, 0, 1000), 7, 0);
  const isKnown = (client: string) => table.find(client, 0, 1000).endpoint === 7;
  const forgotten = clients.filter((client) => !isKnown(client)).length;
  assert(forgotten < 30, `${forgotten} are forgotten`);
});

Deno.test("AffinityTable.find() returns no endpoint after a time-out of a day, for 24 days", () => {
  const [hour, day] = [3_600_000, 24 * 3_600_000];
  const table = new AffinityTable();
  table.bind(table.find("10.0.0.1", 0, day), 7, 0);
  const endpointAfter = (hours: number) => table.find("10.0.0.1", hours * hour, day).endpoint;
  assertEquals([0, 23.99].map(endpointAfter), [7, 7]);
  for (let hours = 24; hours < 24 * 24; hours++) assertEquals(endpointAfter(hours), undefined);
});
