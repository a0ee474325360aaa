import { assertEquals, assertStringIncludes } from "@std/assert";
import { IpvsRuns } from "../../tests/support/stages/ipvs_runs.ts";
import { ipvsPlanOf } from "../../tests/support/stages/ipvs_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { parseServerRecord } from "./server_record.ts";

const MINUTE = 60_000;
const GOING = "10.2.0.1:8080";
const WEB = { name: "web", clusterIp: "172.30.0.1" };
const BEFORE = ipvsPlanOf(testServicePlan({ ...WEB, to: ["10.1.0.1:8080", GOING] }));
const AFTER = ipvsPlanOf(testServicePlan({ ...WEB, to: ["10.1.0.1:8080"] }));

/** An endpoint with a connection begins to drain, and ten minutes pass. */
async function drainingRuns(options: { readonly isKilled?: boolean } = {}): Promise<IpvsRuns> {
  const runs = new IpvsRuns();
  runs.machine.connections.set(GOING, 1);
  await runs.run(async (stage) => {
    await stage.sync(BEFORE);
    await stage.sync(AFTER);
    await stage.pass(10 * MINUTE);
    assertEquals(stage.weight(GOING), 0);
  }, options);
  return runs;
}

/** Whether the endpoint is there before and after this time of a new run. */
async function assertEndsAfter(runs: IpvsRuns, ms: number): Promise<void> {
  await runs.run(async (stage) => {
    await stage.sync(AFTER);
    await stage.pass(ms - 10_000);
    assertEquals(stage.weight(GOING), 0, "it still drains");
    await stage.pass(20_000);
    assertEquals(stage.weight(GOING), undefined, "its time is over");
  });
}

for (const isKilled of [false, true]) {
  Deno.test(`IpvsBackend: draining continues from its first moment after a restart, killed: ${isKilled}`, async () => {
    const runs = await drainingRuns({ isKilled });
    runs.wait(2 * MINUTE);
    await assertEndsAfter(runs, 3 * MINUTE);
  });
}

Deno.test("IpvsBackend: the time of draining is kept over many restarts", async () => {
  const runs = await drainingRuns();
  for (let restart = 0; restart < 4; restart++) {
    await runs.run(async (stage) => {
      await stage.sync(AFTER);
      await stage.pass(MINUTE);
      assertEquals(stage.weight(GOING), 0);
    }, { isKilled: restart % 2 === 0 });
  }
  await assertEndsAfter(runs, MINUTE);
});

Deno.test("IpvsBackend: the drain time starts again if the clock was set back", async () => {
  const runs = await drainingRuns();
  runs.wait(-60 * MINUTE);
  await assertEndsAfter(runs, 15 * MINUTE);
});

Deno.test("IpvsBackend: a clock that is set while it runs changes no time, also over a restart", async () => {
  const runs = new IpvsRuns();
  runs.machine.connections.set(GOING, 1);
  const yearMs = 365 * 24 * 60 * MINUTE;
  await runs.run(async (stage) => {
    await stage.sync(BEFORE);
    await stage.sync(AFTER);
    await stage.pass(5 * MINUTE);
    stage.clock.jump(yearMs);
    await stage.pass(5 * MINUTE);
    assertEquals(stage.weight(GOING), 0);
  }, { isKilled: true });
  runs.wait(yearMs);
  await assertEndsAfter(runs, 5 * MINUTE);
});

Deno.test("IpvsBackend: a time that is over while nothing runs ends at the first look of the next run", async () => {
  const runs = await drainingRuns();
  runs.wait(60 * MINUTE);
  await runs.run(async (stage) => {
    await stage.sync(AFTER);
    assertEquals(stage.weight(GOING), 0);
    await stage.pass(31_000);
    assertEquals(stage.weight(GOING), undefined, "the first look takes it away");
  });
});

Deno.test("IpvsBackend: without a bound an endpoint drains as long as it likes, over restarts", async () => {
  const runs = await drainingRuns();
  runs.wait(60 * MINUTE);
  await runs.run(async (stage) => {
    await stage.sync(AFTER);
    await stage.pass(60 * MINUTE);
    assertEquals(stage.weight(GOING), 0);
  }, { drainTimeoutMs: 0 });
});

Deno.test("IpvsBackend: after a reboot an endpoint that goes has its whole time", async () => {
  const runs = await drainingRuns();
  const { kernel } = runs.machine;
  kernel.table.apply({ kind: "flush" });
  await runs.run(async (stage) => {
    await stage.sync(BEFORE);
    await stage.pass(5_000);
    assertEquals(parseServerRecord(runs.machine.recordFile.text ?? "").drains, []);
    await stage.sync(AFTER);
    await stage.pass(14 * MINUTE);
    assertEquals(stage.weight(GOING), 0);
    await stage.pass(2 * MINUTE);
    assertEquals(stage.weight(GOING), undefined);
  });
});

Deno.test("IpvsBackend: one that came back and goes again has its whole time", async () => {
  const runs = await drainingRuns();
  await runs.run(async (stage) => {
    await stage.sync(BEFORE);
    await stage.sync(AFTER);
    await stage.pass(MINUTE);
  });
  await assertEndsAfter(runs, 14 * MINUTE);
});

for (const text of ["", "null", '{"version":7}', "\0\0\0", `{"version":1,"drains":[["`]) {
  Deno.test(`IpvsBackend serves in spite of a record of ${JSON.stringify(text)}`, async () => {
    const runs = await drainingRuns();
    runs.machine.recordFile.text = text;
    await assertEndsAfter(runs, 15 * MINUTE);
    await runs.run(async (stage) => {
      await stage.sync(AFTER);
      assertEquals(stage.logger.lines.filter(({ level }) => level === "warn"), []);
    });
  });
}

Deno.test("IpvsBackend serves if the state directory cannot be written, and reports it once", async () => {
  const runs = new IpvsRuns();
  runs.machine.recordFile.problem = new Error("Permission denied (os error 13)");
  runs.machine.connections.set(GOING, 1);
  await runs.run(async (stage) => {
    await stage.sync(BEFORE);
    await stage.sync(AFTER);
    await stage.pass(5 * MINUTE);
    assertEquals(stage.weight(GOING), 0);
    const warnings = stage.logger.lines.filter(({ message }) => message.includes("Cannot write"));
    assertEquals(warnings.length, 1);
    assertStringIncludes(JSON.stringify(warnings), "--state-dir");
  });
});
