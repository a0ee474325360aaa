/** A node whose netfilter other programs use already, and kube-relay in a mode whose rules stay. */
import { assert, assertEquals } from "@std/assert";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { DEADLINE_FACTOR } from "../deadline_factor.ts";
import { ProbeClient } from "../drivers/echo_network.ts";
import type { ProbeTarget } from "../drivers/probe_protocol.ts";
import { addForeignRules } from "./iptables_tools.ts";
import type { Namespace } from "./netns.ts";
import { loadNftables } from "./nftables_tools.ts";
import { RelayProcess } from "./relay_process.ts";
import { RELAY_FLAGS, RelayScene } from "./relay_scene.ts";
import type { RuleMode } from "./rule_modes.ts";
import { VIP, VIP_6, VIP_UDP, webServices, webSlices } from "../builders/web_service.ts";

/** Of each of the two clients. In a guest an attempt takes 20 ms of the one processor. */
const ATTEMPTS_PER_SECOND = DEADLINE_FACTOR === 1 ? 150 : 5;
/** A SYN that a full queue has dropped comes again after 1, 3, 7 and 15 s. */
const TIMEOUT_MS = 25_000;

/** With `KUBE_RELAY_SABOTAGE=1`, an address is unreachable afterwards. */
const sabotage = (address: string) =>
  `table ip sabotage {
  chain refuse {
    type filter hook prerouting priority -300
    ip daddr ${address} meta l4proto tcp reject with tcp reset
  }
}
`;

/** Disposing of it ends and removes all. */
export class RuleScene implements AsyncDisposable {
  private constructor(readonly scene: RelayScene, readonly mode: RuleMode) {}

  /** Creates the scene, with Service `web` of both families, whose endpoint is `pod-a1`. */
  static async create(mode: RuleMode): Promise<RuleScene> {
    const stage = new RuleScene(await RelayScene.create(), mode);
    await stage.scene.write(webServices(), webSlices("a1"));
    await addForeignRules(stage.node, mode.othersUse);
    return stage;
  }

  get node(): Namespace {
    return this.scene.cluster.node;
  }

  /** Starts kube-relay in this mode. */
  start(...args: readonly string[]): RelayProcess {
    return this.scene.start([...this.mode.args, ...args]);
  }

  /** Returns the rules that this mode would write for the manifests, as text for its tool. */
  async render(family: IpFamily): Promise<string> {
    const { node, scene: { folder }, mode: { mode } } = this;
    const source = `--manifests=${folder}/manifests`;
    const args = ["render", `--mode=${mode}`, `--family=${family}`, source, ...RELAY_FLAGS];
    return await RelayProcess.run(node, { folder, args });
  }

  /** The rules of this mode, to be compared. */
  async state(): Promise<unknown> {
    return await this.mode.state(this.node);
  }

  /** The rules are those that a start on a node without any leads to. */
  async assertAsAfterFreshStart(): Promise<void> {
    const found = await this.state();
    await this.scene.cleanup();
    const fresh = this.start();
    await fresh.settled();
    assertEquals(found, await this.state());
    await fresh.stop();
  }

  /**
   * Connections from a pod and from outside, while something is done; none may fail. One that was open
   * before goes on, unless the kernel has no way to keep it.
   */
  async assertNoFailureWhile(
    act: () => Promise<void>,
    {
      keepsOpen = true,
      expect = ["pod-a1"],
      to = [VIP, VIP_6, VIP_UDP],
      perSecond = ATTEMPTS_PER_SECOND,
    }: {
      readonly keepsOpen?: boolean;
      /** The first one is of TCP and IPv4. */
      readonly to?: readonly ProbeTarget[];
      /** Attempts of each of the two clients. */
      readonly perSecond?: number;
      /** The servers that may answer. */
      readonly expect?: readonly string[];
    } = {},
  ): Promise<void> {
    const { client, localPodClient } = this.scene.cluster;
    const clients = [client, localPodClient].map((each) => ProbeClient.start(each));
    const targets = to.map((target) => ({ ...target, expect }));
    const kept = ProbeClient.start(client);
    const [first] = to;
    const connection = await kept.open(first!);
    const opened = await connection.who(TIMEOUT_MS);
    for (const each of clients) {
      await each.startLoad(targets, { perSecond, timeoutMs: TIMEOUT_MS });
    }
    try {
      if (Deno.env.get("KUBE_RELAY_SABOTAGE") === "1") {
        await loadNftables(this.node, sabotage(first!.address));
      }
      await act();
      // A lost packet comes again, and the server is busy with the load.
      const answer = await connection.who(TIMEOUT_MS);
      assertEquals(keepsOpen ? answer : opened, opened, "the open connection goes on");
    } finally {
      const reports = await Promise.all(clients.map((each) => each.stopLoad()));
      for (const report of reports) {
        assertEquals(report.failures, 0, report.examples.join("\n"));
        assert(report.attempts > 20, JSON.stringify(report));
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.scene[Symbol.asyncDispose]();
  }
}
