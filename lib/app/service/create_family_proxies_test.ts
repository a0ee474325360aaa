import { assertEquals } from "@std/assert";
import { THIS_NODE } from "../../../tests/support/builders/address_plan.ts";
import { quietChanges } from "../../../tests/support/fakes/quiet_changes.ts";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import type { Node } from "../../api/kinds/node.ts";
import { loadConfiguration } from "../../config/load.ts";
import { createConfiguredMetrics, createServiceTraffic } from "../run/configured_metrics.ts";
import { createFamilyProxies } from "./create_family_proxies.ts";
import type { BackendDependencies, BackendOptions } from "../dependencies.ts";
import type { FamilyProxy } from "./family_proxy.ts";
import { createConnectionJudges } from "../policy/relayed_policies.ts";
import { LivePlanSettings } from "../run/live_plan_settings.ts";
import { planSettingsOf } from "../run/plan_settings.ts";

/** The families of a node in userspace mode, and what their backends were made with. */
class Stage {
  readonly logger = new MemoryLogger();
  readonly drifted: string[] = [];
  readonly families: readonly FamilyProxy[];
  readonly made: { readonly edges: BackendDependencies; readonly options: BackendOptions }[] = [];
  node: Node | undefined;

  private constructor(loaded: Awaited<ReturnType<typeof loadConfiguration>>) {
    const mode = "userspace";
    const configuration = { ...loaded, mode, families: ["IPv4", "IPv6"], flags: {} } as const;
    const clock = new FakeClock();
    const { logger } = this;
    const traffic = createServiceTraffic({ logger }, { mode, serviceCounters: true });
    const edges = { clock, logger, network: new FakeNetwork(), commands: new FakeCommandRunner() };
    const backends = {
      userspace: (edges: BackendDependencies, options: BackendOptions) => {
        this.made.push({ edges, options });
        return new FakeBackend(options.family);
      },
    };
    this.families = createFamilyProxies({ ...edges, random: () => 0, backends }, {
      configuration,
      settings: new LivePlanSettings(planSettingsOf(loaded.proxy, { nodeName: THIS_NODE, mode })),
      listeners: [],
      metrics: createConfiguredMetrics({ clock, traffic }, configuration),
      serviceListeners: [],
      changes: quietChanges({ driftFound: ({ family }) => this.drifted.push(family) }),
      traffic,
      judges: createConnectionJudges({
        ...configuration,
        proxy: { ...loaded.proxy, networkPolicy: { ...loaded.proxy.networkPolicy, enabled: true } },
      }),
    });
  }

  static async configured(): Promise<Stage> {
    const process = { uid: 0, env: () => undefined, readTextFile: () => Promise.reject() };
    return new Stage(await loadConfiguration(process, { flags: {} }));
  }
}

Deno.test("createFamilyProxies() makes one of each family, in their order", async () => {
  const { families, made } = await Stage.configured();
  assertEquals(families.map(({ family, backend }) => [family, backend.family]), [
    ["IPv4", "IPv4"],
    ["IPv6", "IPv6"],
  ]);
  assertEquals(made.map(({ options }) => options.family), ["IPv4", "IPv6"]);
});

Deno.test("createFamilyProxies() gives each backend the counters of its own family", async () => {
  const { made: [v4, v6] } = await Stage.configured();
  assertEquals(v4!.options.traffic !== undefined, true);
  assertEquals(v4!.options.traffic === v6!.options.traffic, false);
  assertEquals(v4!.options.judge !== undefined, true);
  assertEquals(v4!.options.judge === v6!.options.judge, false);
});

Deno.test("createFamilyProxies() names the family in logs, and writes down its drift", async () => {
  const { drifted, logger, made } = await Stage.configured();
  const { edges } = made[1]!;
  edges.logger.info("made");
  assertEquals(logger.lines.at(-1)?.fields, { ipFamily: "IPv6" });
  edges.onDrift?.({ kind: "rule", found: 2, repaired: 2 });
  assertEquals(drifted, ["IPv6"]);
});
