import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import {
  DIFF_SHARED,
  freshMeaning,
  NftDiffStage,
} from "../../tests/support/stages/nft_diff_stage.ts";
import { randomServicePlan } from "../../tests/support/builders/random_service_plan.ts";
import {
  OwnedPlans,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { NftError } from "../netfilter/nft/nft_runner.ts";

type Step = (world: World) => Promise<void>;

/** One history. */
class World {
  shared = DIFF_SHARED;
  readonly plans: OwnedPlans;

  constructor(public stage: NftDiffStage) {
    this.plans = new OwnedPlans(stage.layout, DIFF_SHARED);
  }

  async sync(): Promise<void> {
    await this.stage.sync();
  }
}

let [failures, damages, restarts, cuts] = [0, 0, 0, 0];

const step = fc.oneof(
  {
    arbitrary: randomServicePlan.map((plan): Step => async ({ plans }) => {
      await Promise.resolve(plans.set(plan));
    }),
    weight: 6,
  },
  {
    arbitrary: fc.integer({ min: 0, max: 60 }).map((name): Step => async ({ plans }) => {
      await Promise.resolve(plans.delete(testServicePlan({ name: String(name) }).key));
    }),
    weight: 2,
  },
  {
    arbitrary: fc.record({
      cidrs: fc.subarray(["172.30.0.0/16", "172.30.0.0/24", "172.31.0.0/16"]),
      addresses: fc.subarray(["192.168.0.2", "127.0.0.1", "192.168.1.2"]),
    }).map(({ cidrs, addresses }): Step => async (world) => {
      world.shared = testSharedPlan({
        ...DIFF_SHARED,
        serviceCidrs: cidrs.map(parseCidr),
        nodePortAddresses: addresses.map(parseIpAddress),
      });
      await Promise.resolve(world.stage.layout.setShared(world.shared));
    }),
    weight: 1,
  },
  { arbitrary: fc.constant<Step>((world) => world.sync()), weight: 2 },
  // It is unknown whether the kernel took it.
  {
    arbitrary: fc.boolean().map((carriedOut): Step => async (world) => {
      failures++;
      world.stage.machine.commands.failNext("timeout", { carriedOut });
      await world.sync().catch((error) => assert(error instanceof NftError));
      // Nothing may have been left to write.
      await world.stage.target.table.missingChains().catch(() => {});
    }),
    weight: 1,
  },
  // A removal of all chains out of use, with a reading that the kernel cut off or tore.
  {
    arbitrary: fc.nat(2).map((number): Step => async (world) => {
      await world.sync();
      const { machine, engine } = world.stage;
      if (number === 1) machine.cutListings = 1;
      if (number === 2) machine.tornListings = 1;
      if (number > 0) cuts++;
      assertEquals(await engine.verify(), []);
    }),
    weight: 1,
  },
  {
    arbitrary: fc.record({ place: fc.nat(1_000), how: fc.nat(4) }).map(
      ({ place, how }): Step => async (world) => {
        await world.sync();
        const { table, engine } = world.stage;
        const named = damage(table, place, how);
        if (named === undefined) return;
        damages++;
        const found = await engine.compare();
        assert(
          found.some(({ name }) => name === named),
          `${named} among ${found.map((each) => each.name)}`,
        );
        if (how !== 4) assertEquals(found.length, 1);
        await engine.verify();
        assertEquals(await engine.compare(), []);
      },
    ),
    weight: 1,
  },
  // Another process takes over, and numbers no endpoint anew.
  {
    arbitrary: fc.constant<Step>(async (world) => {
      restarts++;
      await world.sync();
      const { machine, layout } = world.stage;
      const next = await NftDiffStage.create(machine, layout);
      world.stage = next;
      assertEquals(await next.sync(), []);
    }),
    weight: 1,
  },
);

/** Changes one object as another program would; returns its name. */
function damage(
  { chains, elements }: NftDiffStage["table"],
  place: number,
  how: number,
): string | undefined {
  const [name = "", rules = []] = [...chains].filter(([, rules]) => rules.length > 0)
    .at(place % 7) ?? [];
  if (how === 0) chains.set(name, [...rules, "drop"]);
  if (how === 1) chains.set("foreign", ["counter"]);
  if (how < 2) return how === 0 ? name : "foreign";
  const all = [...elements].filter(([name]) => name !== "affinity").flatMap(([name, values]) =>
    [...values.keys()].map((key) => [name, key] as const)
  );
  const [container = "", key = ""] = all[place % Math.max(1, all.length)] ?? [];
  if (how === 2) elements.get(container)?.delete(key);
  if (how === 3) elements.get("cluster-ips")?.set("172.30.99.99", "");
  if (how === 4) chains.delete("layout-3");
  return how === 2 ? key : how === 3 ? "172.30.99.99" : "ip kube-relay";
}

Deno.test("the engine gives the table of a rendering from nothing, whatever happened before", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 5, maxLength: 40, size: "max" }),
      async (steps) => {
        const world = new World(await NftDiffStage.create());
        for (const step of steps) await step(world);
        await world.sync();
        assertEquals(world.stage.meaning, freshMeaning(world.plans.values(), world.shared));
        assertEquals(await world.stage.engine.compare(), []);
      },
    ),
    { numRuns: 150 },
  );
  for (const count of [failures, damages, restarts, cuts]) assert(count > 50, `${count}`);
});
