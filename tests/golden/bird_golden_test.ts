/** The exact configuration of BIRD for some plans; see `golden_test.ts`. */
import { assert, assertEquals } from "@std/assert";
import { atOnce } from "../../backends/netfilter/in_steps.ts";
import { birdConfig, passwordOf } from "../../backends/announce/bird/bird_config.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { BGP_PLANS } from "../support/builders/bgp_plans.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { withFolder } from "../support/with_folder.ts";

const UPDATE = Deno.env.get("UPDATE_GOLDEN") === "1";
const FOLDER = new URL("./bird/", import.meta.url);
const SECRETS_FILE = "/run/kube-relay/bird-secrets.conf";

for (const [name, plan] of Object.entries(BGP_PLANS)) {
  Deno.test(`golden configuration: bird ${name}.conf`, () => {
    const { text, quarantined } = atOnce(birdConfig(plan, SECRETS_FILE));
    assertEquals(quarantined, []);
    const path = new URL(`${name}.conf`, FOLDER);
    if (UPDATE) Deno.writeTextFileSync(path, text);
    else assertEquals(text, Deno.readTextFileSync(path), "deno task golden:update writes it anew");
  });
}

Deno.test("golden configuration: every file of bird belongs to a plan", () => {
  const files = [...Deno.readDirSync(FOLDER)].map(({ name }) => name);
  assertEquals(files.filter((file) => !(file.replace(/\.conf$/, "") in BGP_PLANS)), []);
  assert(files.length > 0);
});

const test = testNeeding("bird -p of golden configurations", [program("bird")]);

for (const [name, plan] of Object.entries(BGP_PLANS)) {
  test(`BIRD takes the golden configuration ${name}.conf`, () =>
      withFolder(async (folder) => {
        const golden = await Deno.readTextFile(new URL(`${name}.conf`, FOLDER));
        const secrets = `${folder}/secrets`;
        const lines = plan.peers.map((peer) => `define ${passwordOf(peer.name)} = "secret";\n`);
        await Deno.writeTextFile(secrets, lines.join(""));
        const file = `${folder}/bird.conf`;
        await Deno.writeTextFile(file, golden.replace(SECRETS_FILE, secrets));
        const { code, stdout, stderr } = await systemCommandRunner.run("bird", ["-p", "-c", file]);
        assertEquals([code, stdout, stderr], [0, "", ""]);
      }));
}
