/**
 * Tests the effect of changed endpoints on clients in the modes whose rules stay: in a rollout, and
 * while kube-relay is dead.
 */
import { assert, assertEquals } from "@std/assert";
import { askControl } from "../../lib/tools/control/control_client.ts";
import { ADDRESSES, THIS_NODE } from "../support/builders/address_plan.ts";
import { ApiProcess } from "../support/drivers/api_process.ts";
import { testEndpointSlice, testNode, testService } from "../support/builders/builders.ts";
import { ProbeClient, SILENCE_MS } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { rawObjects } from "../support/builders/raw_objects.ts";
import { RelayProcess } from "../support/stages/relay_process.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { testNeeding } from "../support/requirement.ts";
import { RULE_MODES, type RuleMode } from "../support/stages/rule_modes.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";
import {
  VIP,
  VIP_UDP,
  webObjects,
  webServices,
  webSlices,
} from "../support/builders/web_service.ts";

const { localPods, remotePods } = ADDRESSES.IPv4;
/** Endpoints of all Services from one start to the next. */
const SCALED = [["a1", "b1"], ["b1"], ["a1"], ["a1", "b1"]] as const;
const ROLLOUTS = 5;
/** Of the default of `minSyncPeriod`. A busy machine need not reach it in each rollout. */
const HALF_PERIOD_MS = 500;

/** Other Services, so that the first sync after a start has work to do. */
function otherServices(...pods: readonly ("a1" | "b1")[]) {
  const endpoints = pods.map((pod) => (pod === "a1" ? localPods : remotePods)[0]);
  const names = Array.from({ length: 100 }, (_, index) => `other-${index}`);
  return {
    services: names.map((name, index) => testService(name, { clusterIP: `172.30.1.${index}` })),
    slices: names.map((name) => testEndpointSlice(name, { endpoints })),
  };
}

/** kube-relay with its default periods, fed by an API server. */
class Rollout {
  readonly #folder: string;
  readonly #api: ApiProcess;
  readonly #relay: RelayProcess;

  private constructor(folder: string, api: ApiProcess, relay: RelayProcess) {
    this.#folder = folder;
    this.#api = api;
    this.#relay = relay;
  }

  static async start({ cluster: { node }, folder }: RelayScene, mode: RuleMode): Promise<Rollout> {
    await mode.prepare(node);
    const api = await ApiProcess.start(node, `${folder}/kubeconfig`);
    await api.write([...rawObjects("Node", testNode()), ...webObjects("a1")]);
    const source = [`--kubeconfig=${api.kubeconfig}`, `--hostname-override=${THIS_NODE}`];
    const relay = RelayProcess.start(node, { folder, args: [`--mode=${mode.mode}`, ...source] });
    await relay.settled();
    return new Rollout(folder, api, relay);
  }

  /** Writes objects and waits for the sync that follows. */
  async #write(objects: Parameters<ApiProcess["write"]>[0]): Promise<void> {
    const lastSync = async () => (await this.#relay.status()).families[0]?.lastSync?.at;
    const before = await lastSync();
    await this.#api.write(objects);
    await eventually("the sync after a change", async () => await lastSync() !== before);
  }

  /** Rolls a Service out, pod by pod; returns how long its first ready endpoint waited for a sync. */
  async of(name: string, clusterIP: string): Promise<number> {
    const slice = (...ready: readonly boolean[]) =>
      rawObjects(
        "EndpointSlice",
        testEndpointSlice(name, {
          endpoints: ready.map((isReady, index) => ({
            addresses: [`10.1.9.${index + 1}`],
            conditions: { ready: isReady },
          })),
        }),
      );
    await this.#write(rawObjects("Service", testService(name, { clusterIP })));
    for (const pods of [[], [false], [false, false], [true, false]]) {
      await this.#write(slice(...pods));
    }
    return await eventually("the rollout is in the change log", async () => {
      const { entries } = await askControl(`${this.#folder}/control.sock`, "/changes", {
        last: "1",
      });
      const entry = entries.at(-1);
      const isReady = entry?.kind === "sync" &&
        entry.lines.some(({ text, object }) =>
          text.startsWith("EndpointSlice ") && object?.includes(name)
        );
      return isReady ? { waitedMs: entry.waitedMs ?? 0 } : undefined;
    }).then(({ waitedMs }) => waitedMs);
  }

  async kill(): Promise<void> {
    await this.#relay.kill();
  }
}

for (const mode of RULE_MODES) {
  const test = testNeeding(`endpoints in ${mode.name}`, mode.requirements());

  test(`rollout in ${mode.name}: the first ready endpoint waits for no pod that is not ready`, async () => {
    await using scene = await RelayScene.create();
    const rollout = await Rollout.start(scene, mode);
    const waits: number[] = [];
    for (let count = 1; count <= ROLLOUTS; count++) {
      waits.push(await rollout.of(`rollout-${count}`, `172.30.5.${count}`));
    }
    await rollout.kill();
    assert(Math.min(...waits) < HALF_PERIOD_MS, `waited ${waits.join(", ")} ms`);
  });

  test(`endpoints of ${mode.name} are added and removed while it is dead: no connection fails`, async () => {
    await using stage = await RuleScene.create(mode);
    let relay = stage.start();
    await relay.settled();
    await stage.assertNoFailureWhile(async () => {
      for (const pods of SCALED) {
        await relay.kill();
        const { services, slices } = otherServices(...pods);
        const all = [[...webServices(), ...services], [
          ...webSlices(...pods),
          ...slices,
        ]] as const;
        await stage.scene.write(...all);
        relay = stage.start();
        await relay.settled();
      }
      await relay.stop();
    }, { expect: ["pod-a1", "pod-b1"] });
    await stage.assertAsAfterFreshStart();
  });

  test(`a pod that is removed while ${mode.name} is dead gets packets until the next start`, async () => {
    await using stage = await RuleScene.create(mode);
    const first = stage.start();
    await first.settled();
    const client = ProbeClient.start(stage.scene.cluster.client);
    const flow = await client.open(VIP_UDP);
    assertEquals([await client.who(VIP), await flow.who()], ["pod-a1", "pod-a1"]);
    await first.kill();
    await stage.scene.cluster.localPods[0].ip("link set eth0 down");
    await stage.scene.write(webServices(), webSlices("b1"));
    assertEquals(await client.who(VIP, SILENCE_MS) === "pod-b1", false);
    const second = stage.start();
    await second.settled();
    for (let count = 0; count < 10; count++) assertEquals(await client.who(VIP), "pod-b1");
    await eventually("the flow has moved", async () => await flow.who() === "pod-b1");
    await second.stop();
  });
}
