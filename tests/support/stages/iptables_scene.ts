/** A node with an iptables that other programs use already, and kube-relay in iptables mode. */
import {
  addForeignRules,
  type IPTABLES_PREFIXES,
  type IptablesVariant,
  restoreRules,
  savedRules,
} from "./iptables_tools.ts";
import type { Namespace } from "./netns.ts";
import type { RelayProcess } from "./relay_process.ts";
import { RelayScene } from "./relay_scene.ts";
import { webServices, webSlices } from "../builders/web_service.ts";

/** Disposing of it ends and removes all. */
export class IptablesScene implements AsyncDisposable {
  private constructor(readonly scene: RelayScene, readonly variant: IptablesVariant) {}

  /** Creates the scene, with Service `web` of both families, whose endpoint is `pod-a1`. */
  static async create(variant: IptablesVariant): Promise<IptablesScene> {
    const stage = new IptablesScene(await RelayScene.create(), variant);
    await stage.scene.write(webServices(), webSlices("a1"));
    await addForeignRules(stage.node, variant);
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

  async [Symbol.asyncDispose](): Promise<void> {
    await this.scene[Symbol.asyncDispose]();
  }
}
