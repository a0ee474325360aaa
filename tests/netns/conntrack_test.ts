/**
 * Stale UDP flows in a real kernel: a client that keeps its socket stays with the endpoint that its
 * flow began with, until the flow is deleted.
 *
 * @module
 */
import { serviceSyncEvent } from "../support/builders/sync_events.ts";
import { assert, assertEquals } from "@std/assert";
import { ConntrackCleaner } from "../../lib/app/service/conntrack_cleaner.ts";
import { IP_FAMILIES, type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import { formatHostPort, parsePort } from "../../lib/net/port.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { createConntrack } from "../../lib/os/conntrack.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { isMissing, program } from "../support/requirement.ts";
import {
  testEndpoint,
  testPlanChanges,
  testProxyPlan,
  testServicePlan,
} from "../support/builders/service_plans.ts";
import { ENDPOINT_PORT, UDP_ADDRESSES, UdpRulesNode } from "../support/stages/udp_rules.ts";

const ignore = isMissing("stale UDP flows with real packets", [
  ...netnsRequirements(),
  program("conntrack"),
  program("iptables"),
]);

const PORT = 53;
const NODE_PORT = 30053;
/** A packet on one machine is back by then. */
const SOON_MS = 400;
/** An answer that has to come. */
const ANSWER_MS = 10_000;

type Pod = "a" | "b";

/** Service `dns` of a family with these endpoints; `undefined` = there is none. */
function planOf(family: IpFamily, pods: readonly Pod[] | undefined): ProxyPlan {
  const { vip, node, endpoints } = UDP_ADDRESSES[family];
  const service = (running: readonly Pod[]) =>
    testServicePlan({
      name: "dns",
      protocol: "UDP",
      clusterIp: vip,
      port: PORT,
      nodePort: NODE_PORT,
      endpoints: running.map((pod) => testEndpoint(formatHostPort(endpoints[pod], ENDPOINT_PORT))),
    });
  return testProxyPlan(pods ? [service(pods)] : [], {
    family,
    shared: { nodePortAddresses: [parseIpAddress(node)] },
  });
}

/** A node with one Service, whose rules and cleaner are controlled by the test. */
class Stage implements AsyncDisposable {
  readonly client: ProbeClient;
  readonly logger = new MemoryLogger();
  #plan: ProxyPlan | undefined;
  #cleaner: ConntrackCleaner;
  #runs: number[] = [];
  /** The cleanings of each run in the change log, by ServicePort. */
  #cleanings: (readonly (readonly [string, number])[])[] = [];
  readonly #controller = new AbortController();
  readonly #running: Promise<void>[] = [];

  private constructor(readonly node: UdpRulesNode, readonly family: IpFamily) {
    this.client = ProbeClient.start(node.namespace);
    this.#cleaner = this.#start();
  }

  static async create(family: IpFamily): Promise<Stage> {
    return new Stage(await UdpRulesNode.create(), family);
  }

  get addresses() {
    return UDP_ADDRESSES[this.family];
  }

  /** Writes rules for these endpoints and runs the cleaner. Returns its deletions. */
  async serve(pods: readonly Pod[] | undefined): Promise<number> {
    const { vip, node } = this.addresses;
    const to = pods?.[0];
    await this.node.setRules(
      this.family,
      to === undefined
        ? []
        : [{ address: vip, port: PORT, to }, { address: node, port: NODE_PORT, to }],
    );
    const next = planOf(this.family, pods);
    const runs = this.#runs.length;
    void this.#cleaner.on(
      serviceSyncEvent("synced", this.family, next, testPlanChanges(next, this.#plan)),
    );
    this.#plan = next;
    const deleted = await eventually("the flows are looked after", () => this.#runs[runs]);
    assertEquals(this.#cleanings[runs], deleted === 0 ? [] : [["ns/dns/UDP", deleted]]);
    return deleted;
  }

  /** As after a restart of the program: it knows nothing of before. */
  restart(): void {
    this.#plan = undefined;
    this.#cleaner = this.#start();
  }

  #start(): ConntrackCleaner {
    const cleaner = new ConntrackCleaner({
      clock: systemClock,
      logger: this.logger,
      conntrack: createConntrack(this.node.commands),
      metrics: { conntrackReconciled: (_, { deleted }) => void this.#runs.push(deleted) },
      changes: { flowsCleaned: (_, { removed }) => void this.#cleanings.push([...removed]) },
    });
    this.#running.push(cleaner.run(this.#controller.signal));
    return cleaner;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#controller.abort();
    await Promise.all(this.#running);
    await this.node[Symbol.asyncDispose]();
  }
}

for (const family of IP_FAMILIES) {
  Deno.test({
    name: `ConntrackCleaner moves a client that keeps its socket, ${family}`,
    ignore,
    async fn(t) {
      await using stage = await Stage.create(family);
      const { vip, node, foreign } = stage.addresses;
      const open = (address: string, port: number) =>
        stage.client.open({ protocol: "UDP", address, port });
      await t.step("that began before there was an endpoint (upstream: yes)", async () => {
        const kept = await open(vip, PORT);
        assertEquals(await kept.who(SOON_MS), "silent");
        assertEquals(await stage.serve(["a"]), 1);
        assertEquals(await kept.who(), "a");
        await kept.close();
      });
      const kept = [await open(vip, PORT), await open(node, NODE_PORT)] as const;
      const others = await open(foreign, NODE_PORT);
      const elsewhere = await eventually("a flow elsewhere is tracked", async () => {
        await others.who(SOON_MS);
        const flows = await stage.node.flows(foreign, NODE_PORT);
        return flows.length === 1 ? flows : undefined;
      });
      const said = async (ms = ANSWER_MS) => await Promise.all(kept.map((each) => each.who(ms)));
      await t.step("when its endpoint was removed and another one exists", async () => {
        assertEquals(await said(), ["a", "a"]);
        assertEquals(await stage.serve(["b"]), 3);
        assertEquals(await said(), ["b", "b"]);
      });
      await t.step("not at a restart that changes nothing", async () => {
        const before = await stage.node.flows(vip, PORT);
        assertEquals(before.length, 1);
        stage.restart();
        assertEquals(await stage.serve(["b"]), 0);
        assertEquals(await stage.node.flows(vip, PORT), before);
      });
      await t.step(
        "when the last endpoint was removed (upstream: stays with the dead one)",
        async () => {
          assertEquals(await stage.serve([]), 2);
          assert(!(await said(SOON_MS)).includes("b"));
          assertEquals(await stage.serve(["a"]), 2);
          assertEquals(await said(), ["a", "a"]);
        },
      );
      await t.step("when the Service is deleted (upstream: stays)", async () => {
        assertEquals(await stage.serve(undefined), 2);
        assert(!(await said(SOON_MS)).includes("a"));
      });
      await t.step("never one to the node port's number elsewhere (upstream: ends)", async () => {
        assertEquals(await stage.node.flows(foreign, NODE_PORT), elsewhere);
      });
      assertEquals(stage.logger.lines.filter(({ level }) => level !== "verbose"), []);
    },
  });
}

Deno.test({
  name: "createConntrack() reads 20,000 flows line by line, and deletes thousands by one process",
  ignore,
  async fn() {
    await using node = await UdpRulesNode.create();
    const stdin = Array.from({ length: 20_000 }, (_, index) => {
      const client = `10.${2 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;
      return `-I -p udp -s ${client} -d 10.96.0.10 --sport 5000 --dport 53 -r 10.1.0.${
        index % 5
      } ` +
        `-q ${client} --reply-port-src 53 --reply-port-dst 5000 -t 300\n`;
    });
    assertEquals((await node.commands.run("conntrack", ["-R", "-"], { stdin })).code, 0);
    const dns = parseIpAddress("10.96.0.10");
    let seen = 0;
    let longestRun = 0;
    let run = 0;
    const timer = setInterval(() => run = 0, 0);
    const conntrack = createConntrack(node.commands);
    const entries = await conntrack.listFlows("IPv4", {
      protocol: "UDP",
      ports: new Set([53, 54, 55, 56].map(parsePort)),
      onFlow({ destination }) {
        // Other programs of the machine may send packets in a new namespace, too.
        if (destination !== dns) return;
        seen++;
        longestRun = Math.max(longestRun, ++run);
      },
    });
    clearInterval(timer);
    assertEquals(seen, 20_000);
    assert(entries >= seen, `looked at ${entries}`);
    assert(longestRun < 20_000 / 4, `${longestRun} in one go: it was read as a whole`);
    const deleted = await conntrack.deleteFlows("IPv4", [{
      destination: dns,
      destinationPort: parsePort(53),
      replySource: parseIpAddress("10.1.0.2"),
      replySourcePort: parsePort(53),
    }], { protocol: "UDP" });
    assertEquals(deleted, 4_000);
    assertEquals((await node.flows("10.96.0.10", 53)).length, 16_000);
  },
});
