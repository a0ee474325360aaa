/**
 * A node with an iptables that others use already, and kube-relay in iptables mode beside them.
 *
 * @module
 */
import {
  IPTABLES_PREFIXES,
  type IptablesVariant,
  restoreRules,
  savedRules,
} from "./iptables_tools.ts";
import type { Namespace } from "./netns.ts";
import type { RelayProcess } from "./relay_process.ts";
import { RelayScene } from "./relay_scene.ts";
import { webServices, webSlices } from "./web_service.ts";

/**
 * One rule of somebody else's in each built-in chain: where there are more, kube-relay writes too. And
 * one as a CNI's, which needs conntrack: with the last rule that does, the kernel forgets how the
 * connections that are open are translated.
 */
const FOREIGN = `*mangle
-A PREROUTING -m mark --mark 0x77 -j ACCEPT
-A INPUT -m mark --mark 0x77 -j ACCEPT
-A FORWARD -m mark --mark 0x77 -j ACCEPT
-A OUTPUT -m mark --mark 0x77 -j ACCEPT
-A POSTROUTING -m mark --mark 0x77 -j ACCEPT
COMMIT
*filter
-A INPUT -m mark --mark 0x77 -j ACCEPT
-A FORWARD -m mark --mark 0x77 -j ACCEPT
-A OUTPUT -m mark --mark 0x77 -j ACCEPT
COMMIT
*nat
-A PREROUTING -m mark --mark 0x77 -j ACCEPT
-A INPUT -m mark --mark 0x77 -j ACCEPT
-A OUTPUT -m mark --mark 0x77 -j ACCEPT
-A POSTROUTING -m mark --mark 0x77 -j ACCEPT
-A POSTROUTING -m mark --mark 0x78 -j MASQUERADE
COMMIT
`;

/** Disposing of it ends and removes all. */
export class IptablesScene implements AsyncDisposable {
  readonly scene: RelayScene;
  readonly variant: IptablesVariant;

  private constructor(scene: RelayScene, variant: IptablesVariant) {
    this.scene = scene;
    this.variant = variant;
  }

  /** Makes it, with Service `web` of both families, whose endpoint is `pod-a1`. */
  static async create(variant: IptablesVariant): Promise<IptablesScene> {
    const stage = new IptablesScene(await RelayScene.create(), variant);
    await stage.scene.write(webServices(), webSlices("a1"));
    for (const prefix of IPTABLES_PREFIXES) await stage.restore(prefix, FOREIGN);
    return stage;
  }

  get node(): Namespace {
    return this.scene.cluster.node;
  }

  /** Starts kube-relay in this mode. */
  start(...args: readonly string[]): RelayProcess {
    return this.scene.start(["--mode=iptables", "--iptables-sync-period=1s", ...args]);
  }

  /** Adds rules to one family. */
  async restore(prefix: typeof IPTABLES_PREFIXES[number], stdin: string): Promise<void> {
    await restoreRules(this.node, `${prefix}-${this.variant}`, stdin);
  }

  /** All rules of both families as text, without counters and comments. */
  async rules(): Promise<string> {
    return await savedRules(this.node, this.variant);
  }

  /** Takes all rules and chains of a table away, as a firewall script would. */
  async flush(table: string): Promise<void> {
    for (const flag of ["-F", "-X"]) {
      await this.node.output(`iptables-${this.variant}`, ["-w", "-t", table, flag]);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.scene[Symbol.asyncDispose]();
  }
}
