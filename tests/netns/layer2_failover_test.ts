/**
 * Real clients of load balancer addresses while their owner ends, is cut off, or loses the API server.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { DEADLINE_FACTOR } from "../support/deadline_factor.ts";
import { eventually } from "../support/eventually.ts";
import { isMissing, program } from "../support/requirement.ts";
import { FailoverCluster } from "../support/stages/failover_cluster.ts";
import {
  doubleAnswersOf,
  FAILOVER_CAUSES,
  longestSilence,
  measureFailover,
} from "../support/stages/failover_measure.ts";
import { netnsRequirements } from "../support/stages/netns.ts";

const ignore = isMissing("failover of load balancer addresses", [
  ...netnsRequirements(),
  ...["arping", "ndisc6", "nft", "socat", "tcpdump"].map(program),
]);

/** The duration of a Lease: the longest time for which two nodes may answer. */
const LEASE_MS = 3_000;
/** Other programs may delay everything. */
const SLACK_MS = 3_000 * DEADLINE_FACTOR;
/** A busy machine may be later than that once. */
const ATTEMPTS = 3;

/** Lets time pass in which nothing may happen. */
async function pass(ms: number): Promise<void> {
  const until = Date.now() + ms;
  await eventually(`${ms} ms have passed`, () => Date.now() >= until);
}

/** Asserts that the first node alone answered for `web` since a time, and was never silent for long. */
function assertStayed(cluster: FailoverCluster, since: number): void {
  const [first] = cluster.nodes;
  for (const address of Object.values(cluster.addresses.web)) {
    const frames = cluster.frames(address, since);
    const others = frames.filter(({ from }) => from !== first.link);
    assertEquals(others, [], `${address}: only the owner answers`);
    const silentMs = longestSilence(frames, { since, until: Date.now() - 200 });
    assert(silentMs < 1_000 + SLACK_MS, `${address}: no answer for ${silentMs} ms`);
  }
}

Deno.test({
  name: "addresses of both families move to another node in time, and no two nodes answer for long",
  ignore,
  async fn(t) {
    await using cluster = await FailoverCluster.start();
    for (const cause of FAILOVER_CAUSES) {
      await t.step(cause.name, async () => {
        const served: number[] = [];
        do {
          const byFamily = Object.entries(await measureFailover(cluster, cause));
          for (const [family, figures] of byFamily) {
            const text = JSON.stringify(figures);
            // deno-lint-ignore no-console -- figures for people
            console.log(`${cause.name}, ${family}: ${text}`);
            assert(figures.doubleMs <= LEASE_MS, `${family}: ${text}`);
          }
          served.push(Math.max(...byFamily.map(([, { servedMs }]) => servedMs)));
        } while (served.at(-1)! > cause.limitMs + SLACK_MS && served.length < ATTEMPTS);
        assert(served.at(-1)! <= cause.limitMs + SLACK_MS, `served after ${served} ms`);
      });
    }
  },
});

Deno.test({
  name: "owners stay while the API server is away, and an owner that alone lost it gives way",
  ignore,
  async fn(t) {
    await using cluster = await FailoverCluster.start();
    const { api, nodes: [first, second], addresses } = cluster;
    const outages = [
      { name: "is silent, for less than a Lease", ms: 1_800, isSilent: true },
      { name: "is silent, for longer than a Lease", ms: 7_000, isSilent: true },
      { name: "refuses connections, for longer than a Lease", ms: 7_000, isSilent: false },
    ];
    for (const { name, ms, isSilent } of outages) {
      await t.step(`the API server ${name}`, async () => {
        const since = Date.now();
        if (isSilent) api.freeze();
        else await api.close();
        await pass(ms);
        assertStayed(cluster, since);
        if (isSilent) api.thaw();
        else await api.reopen();
        // Each node returns at another time.
        await pass(2 * LEASE_MS);
        assertStayed(cluster, since);
      });
    }
    await t.step("the owner alone loses the API server", async () => {
      const since = Date.now();
      await cluster.setReachesApi(first, false);
      await cluster.servedBy(second, "web");
      await cluster.relay(first).logged("Gave an address up");
      await pass(LEASE_MS);
      await cluster.servedBy(second, "web");
      const back = Date.now();
      await cluster.setReachesApi(first, true);
      await cluster.servedBy(first, "web", { calmMs: 1_000, deadlineMs: 90_000 });
      for (const address of Object.values(addresses.web)) {
        const figures = doubleAnswersOf(cluster.frames(address, since));
        const silentMs = longestSilence(cluster.frames(address, since), {
          since,
          until: Date.now() - 200,
        });
        // deno-lint-ignore no-console -- figures for people
        console.log(`${address}: ${JSON.stringify({ ...figures, silentMs })}`);
        assert(figures.doubleMs <= LEASE_MS, JSON.stringify(figures));
      }
      // deno-lint-ignore no-console -- a figure for people
      console.log(`the first node serves again after ${Date.now() - back} ms`);
    });
  },
});
