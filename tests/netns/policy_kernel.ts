/** Tests of every data plane of NetworkPolicy with the rules of a real kernel. */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import type { PolicyPlane } from "../../backends/policy/policy_plane.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../../lib/net/ip_address.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import type { PolicyPlan } from "../../lib/policy/policy_plan.ts";
import { PolicyPlanner } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { caseAddresses } from "../policy/case_addresses.ts";
import { clusterHistory, handleEvent } from "../policy/random_cluster.ts";
import { IPV4_PLAN, setPod, setPolicy } from "../support/builders/policy_objects.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { type Requirement, testNeeding } from "../support/requirement.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import type { PolicyDataPlaneFactory } from "../support/stages/policy_scene.ts";

/** The place of a data plane whose rules another program changes. */
export interface AlteredPlace {
  readonly namespace: Namespace;
  readonly family: IpFamily;
  /** The address of a pod. */
  readonly pod: string;
  /** Compares with the plan; each difference has to be repaired. Returns how many there were. */
  readonly repair: (what: string) => Promise<number>;
}

/** A data plane under test. */
interface KernelDataPlane {
  readonly name: string;
  readonly requirements: readonly Requirement[];
  readonly make: PolicyDataPlaneFactory;
  /** Changes the rules as other programs do, and has each change repaired. */
  readonly alter: (place: AlteredPlace) => Promise<void>;
  readonly remains: (namespace: Namespace) => Promise<string>;
}

async function start(
  { make }: Pick<KernelDataPlane, "make">,
  { namespace, family }: { readonly namespace: Namespace; readonly family: IpFamily },
): Promise<PolicyPlane> {
  const inside = ["netns", "exec", namespace.name];
  const dataPlane = make({
    clock: systemClock,
    commands: {
      run: (tool, args, options) =>
        systemCommandRunner.run("ip", [...inside, tool, ...args], options),
    },
    logger: new MemoryLogger(),
    random: () => 0,
  }, { family, syncPeriodMs: 60_000 });
  await dataPlane.start();
  return dataPlane;
}

/** A planner of policies that need every kind of rule. */
function richPlanner(family: IpFamily): PolicyPlanner {
  const { addressOf, range } = caseAddresses(family);
  const state = new PolicyState();
  setPod(state, "x/a", { address: addressOf("x/a"), ports: { web: 80 } });
  setPod(state, "x/b", { address: addressOf("x/b") });
  setPolicy(state, "x/p", {
    podSelector: {},
    policyTypes: ["Ingress", "Egress"],
    ingress: [
      { from: [{ podSelector: {} }], ports: [{ port: 80 }, { port: 90, endPort: 95 }] },
      { from: [{ ipBlock: { cidr: family === "IPv4" ? "0.0.0.0/0" : "::/0", except: [range] } }] },
      { ports: Array.from({ length: 20 }, (_, index) => ({ port: 2 * index + 1 })) },
    ],
    egress: [
      { to: [{ podSelector: {} }], ports: [{ port: "web" }] },
      { ports: [{ protocol: "UDP" }, { protocol: "SCTP", port: 7 }] },
      { to: [{ ipBlock: { cidr: range } }], ports: [{ protocol: "UDP" }] },
    ],
  });
  return new PolicyPlanner(state, {
    ...IPV4_PLAN,
    family,
    deny: { action: "reject", log: { perMinute: 120, group: 100 } },
    closedRanges: [parseCidr(range)],
    podLinks: ["cni0"],
  });
}

async function repaired(dataPlane: PolicyPlane, plan: PolicyPlan, what: string) {
  const found = await dataPlane.compare(plan);
  assert(found.length > 0, what);
  await dataPlane.repair();
  assertEquals(await dataPlane.compare(plan), [], `${what}: ${JSON.stringify(found)}`);
  return found.length;
}

/** Declares the tests of a data plane. */
export function testPolicyInTheKernel(tested: KernelDataPlane): void {
  const { name, requirements, alter, remains } = tested;
  const test = testNeeding(`NetworkPolicy by ${name} in the kernel`, [
    ...netnsRequirements(),
    ...requirements,
  ]);
  test(`policy by ${name}: what other programs change is seen and repaired`, async () => {
    await using namespace = await Namespace.create("policy");
    for (const family of IP_FAMILIES) {
      await using dataPlane = await start(tested, { namespace, family });
      // Its own watch may notice first.
      await dataPlane.drain();
      const planner = richPlanner(family);
      const changes = planner.update();
      await dataPlane.sync(planner.plan, changes);
      assertEquals(await dataPlane.compare(planner.plan), [], family);
      await alter({
        ...{ namespace, family, pod: caseAddresses(family).addressOf("x/a") },
        repair: (what) => repaired(dataPlane, planner.plan, what),
      });
      assertEquals((await dataPlane.cleanup()).failed, []);
    }
    assertEquals(await remains(namespace), "");
  });

  test(`policy by ${name}: after each change of a random history the kernel holds the plan`, async () => {
    const seed = Date.now();
    for (const family of IP_FAMILIES) {
      for (const history of fc.sample(clusterHistory, { seed, numRuns: 3 })) {
        await using namespace = await Namespace.create("policy");
        await using dataPlane = await start(tested, { namespace, family });
        const state = new PolicyState();
        const planner = new PolicyPlanner(state, { ...IPV4_PLAN, family });
        for (const [index, event] of history.entries()) {
          handleEvent(state, event);
          const changes = planner.update();
          const { full, quarantined } = await dataPlane.sync(planner.plan, changes);
          const text = `seed ${seed}, ${family}, event ${index}`;
          assertEquals([full, quarantined], [index === 0, []], text);
        }
        assertEquals(await dataPlane.compare(planner.plan), [], `seed ${seed}, ${family}`);
      }
    }
  });
}
