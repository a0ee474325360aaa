/** Many random changes while connections break: in the end the client must match the server. */
import { assertEquals } from "@std/assert";
import { systemClock } from "../../lib/os/clock.ts";
import { eventually } from "../support/eventually.ts";
import { chooseSeed, randomFrom } from "../support/builders/seeded_random.ts";
import type { TcpRelay } from "../support/drivers/tcp_relay.ts";
import type { Follower } from "./follower.ts";
import type { ConformanceServer, RawObject } from "./server.ts";
import { testService } from "./test_service.ts";

const CHANGES = 300;
const NAMES = 20;
/** The ways in which connections break, with the share of the changes. */
const CUTS = [[0.01, "resetOpen"], [0.01, "closeOpen"], [0.01, "freezeOpen"]] as const;

/** Makes the changes; its seed is in the message of a failure. `KUBE_RELAY_SEED` repeats one. */
export async function runChurn(
  { server, relay }: { readonly server: ConformanceServer; readonly relay: TcpRelay },
  follower: Follower,
): Promise<void> {
  const seed = chooseSeed();
  const random = randomFrom(seed);
  const expected = new Map<string, string>();
  for (let count = 0; count < CHANGES; count++) {
    await changeOne(server, { expected, random });
    await systemClock.yieldToEventLoop();
    const [, cut] = CUTS.find(([share]) => random() < share) ?? [];
    if (!cut) continue;
    relay[cut]();
    // Else all cuts but the first would meet no connection.
    if (random() < 0.5) await eventually("the client has come back", () => relay.open > 0);
  }
  const seen = () =>
    Object.fromEntries(
      [...follower.informers.services.values()]
        .map(({ metadata, spec }) => [metadata.name, spec.clusterIP ?? ""])
        .filter(([name]) => name?.startsWith("web-"))
        .sort(),
    );
  const wanted = Object.fromEntries([...expected].sort());
  await eventually("the client has every change", () => sameText(seen(), wanted))
    .catch(() => assertEquals(seen(), wanted, `KUBE_RELAY_SEED=${seed} repeats this`));
}

async function changeOne(
  server: ConformanceServer,
  { expected, random }: { expected: Map<string, string>; random: () => number },
): Promise<void> {
  const name = `web-${Math.floor(random() * NAMES)}`;
  const service: RawObject = testService(name, `10.0.${Math.floor(random() * 250)}.1`);
  if (!expected.has(name)) {
    await server.create(service);
  } else if (random() < 0.4) {
    await server.delete(service);
    expected.delete(name);
    return;
  } else {
    await server.update(service);
  }
  expected.set(name, (service.spec as { clusterIP: string }).clusterIP);
}

function sameText(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
