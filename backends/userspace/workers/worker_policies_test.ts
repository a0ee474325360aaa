import { assert, assertEquals } from "@std/assert";
import { suspectAddresses } from "../../../lib/app/policy/connection_cutter.ts";
import { ConnectionJudge } from "../../../lib/policy/connection_judge.ts";
import { PolicyPlanner } from "../../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../../lib/policy/policy_state.ts";
import { IPV4_PLAN, setPod, setPolicy } from "../../../tests/support/builders/policy_objects.ts";
import { testServicePlan } from "../../../tests/support/builders/service_plans.ts";
import { TcpServer } from "../../../tests/support/drivers/tcp_peers.ts";
import { unusedPort } from "../../../tests/support/drivers/unused_port.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { TestUserspaceBackend } from "../../../tests/support/stages/userspace_backend.ts";
import { WatchedWorkers } from "../../../tests/support/stages/watched_workers.ts";

const VIP = "127.96.23.1";
const CLIENT = "127.0.0.1";
const WEB = "127.0.0.2";

/** Policies of one pod, which the client of the test may reach or not. */
class Policies {
  readonly judge = new ConnectionJudge();
  readonly #state = new PolicyState();
  readonly #planner = new PolicyPlanner(this.#state, { ...IPV4_PLAN, includesRemotePods: true });

  constructor() {
    setPod(this.#state, "default/web", { address: WEB, labels: { app: "web" } });
    setPod(this.#state, "default/client", { address: CLIENT, labels: { app: "client" } });
  }

  /** Admits pods of an app, as a sync of policies does. Returns how many connections were cut. */
  async allow(app: string): Promise<number> {
    setPolicy(this.#state, "default/web", {
      podSelector: { matchLabels: { app: "web" } },
      policyTypes: ["Ingress"],
      ingress: [{ from: [{ podSelector: { matchLabels: { app } } }] }],
    });
    const changes = this.#planner.update();
    const { plan } = this.#planner;
    for (const _ of this.judge.takeInSteps(plan, changes));
    await this.judge.pass(plan, changes);
    return await this.judge.relay?.recheck(suspectAddresses(plan, changes)) ?? 0;
  }
}

for (const isFramed of [false, true]) {
  const carrier = isFramed ? "by frames, as data processes" : "by messages of threads";
  Deno.test(`workers judge connections by NetworkPolicies, ${carrier}`, () => judge(isFramed));
}

/** A change cuts the connections that it denies, and another worker knows what the first was told. */
async function judge(isFramed: boolean): Promise<void> {
  await using server = TcpServer.named("web", { hostname: WEB });
  const policies = new Policies();
  const workers = new WatchedWorkers({ isFramed });
  await using test = new TestUserspaceBackend({
    ...{ workers: 2, spawn: workers.spawn, judge: policies.judge },
  });
  const at = { hostname: VIP, port: unusedPort() };
  const plan = testServicePlan({ clusterIp: VIP, port: at.port, to: [server.endpoint] });
  await policies.allow("nobody");
  await test.sync([plan]);
  const served = async () => {
    const connection = await Deno.connect(at);
    await connection.write(new TextEncoder().encode("x")).catch(() => {});
    const count = await connection.read(new Uint8Array(9)).catch(() => null);
    if (count !== null) return connection;
    connection.close();
    return undefined;
  };
  const openMany = async () =>
    (await Promise.all(Array.from({ length: 30 }, served))).filter((each) => each !== undefined);

  assertEquals((await openMany()).length, 0);
  assertEquals((await test.counters()).tcpDenied, 30);
  assertEquals(await policies.allow("client"), 0);
  const opened = await openMany();
  assertEquals(opened.length, 30);
  assert(test.connectionsOfWorkers().every((count) => count > 0));
  assertEquals(await policies.allow("nobody"), 30);
  assertEquals((await openMany()).length, 0);
  for (const connection of opened) connection.close();

  workers.end(0);
  await eventually("another worker runs", () => test.pool?.isRunning(0));
  await test.sync([plan]);
  assertEquals((await openMany()).length, 0, "the new worker knows the policies");
}
