import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { FakeClock } from "../../../../tests/support/fakes/fake_clock.ts";
import type { DataPlaneRepair } from "../../../proxy/data_plane_difference.ts";
import { startControlServer } from "../../control/control_server.ts";
import { reportedRepairs } from "./diff.ts";

const REPAIR: DataPlaneRepair = {
  found: [{ object: "rule", name: "services, rule 1", kind: "missing" }],
  left: [],
  operations: { lines: 1 },
};

Deno.test("reportedRepairs() returns the repair if no running process accepts the report", async () => {
  const folder = await Deno.makeTempDir();
  // An older release knows nothing of messages.
  const path = `${folder}/control.sock`;
  const server = await startControlServer({ path, routes: {} });
  for (const socket of [path, `${folder}/missing.sock`]) {
    const complaints: string[] = [];
    const edges = {
      clock: new FakeClock(),
      complain: (text: string) => void complaints.push(text),
      process: { pid: 1, uid: 0 },
    };
    const run = reportedRepairs(edges, socket);
    assertEquals(await run({ family: "IPv4" }, () => Promise.resolve(REPAIR)), REPAIR);
    assertEquals(complaints.length, 1);
    assertStringIncludes(complaints[0]!, "kube-relay: this repair is not in the change log: ");
    assertEquals(complaints[0]!.endsWith("\n"), true);
    await assertRejects(
      () => run({ family: "IPv4" }, () => Promise.reject(new Error("full"))),
      Error,
      "full",
    );
    await run({ family: "IPv4" }, () => Promise.resolve({ ...REPAIR, found: [] }));
    assertEquals(complaints.length, 2, "nothing was repaired, and nothing is reported");
  }
  await server.stop();
  await Deno.remove(folder, { recursive: true });
});
