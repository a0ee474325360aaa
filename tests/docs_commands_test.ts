/**
 * Every command of the pages, as far as a machine without a cluster allows: options are read by the
 * real parser, files are installed below a folder that stands for the machine, names of units,
 * manifests and tasks are looked up, YAML is read strictly.
 */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { BGP_PEER, ROUTING_OBJECT_KINDS } from "../lib/api/kinds/routing_objects.ts";
import { defaultConfiguration } from "../lib/config/configuration.ts";
import { joinRoutingObjects } from "../lib/config/routing_objects.ts";
import { unknownFields } from "../lib/kube/manifests/manifest_objects.ts";
import { BACKEND_MODES } from "../lib/proxy/backend.ts";
import { readConfigurationFile } from "../lib/config/configuration_file.ts";
import { BACKENDS } from "../backends/mod.ts";
import { COMMAND_PAGES, readPage } from "./support/docs/command_pages.ts";
import { parseManifest } from "./support/docs/deploy_files.ts";
import {
  checkChartValues,
  checkDocCommand,
  checkRelay,
  type DocScene,
} from "./support/docs/doc_commands.ts";
import { extractBlocks, type MarkdownBlock } from "./support/docs/markdown_blocks.ts";
import { parseShell } from "./support/docs/shell_commands.ts";

/** Languages of blocks, and their checks; output has no language. */
const BLOCK_CHECKS: Readonly<
  Record<string, (block: MarkdownBlock, scene: DocScene) => Promise<void>>
> = {
  sh: checkShell,
  yaml: checkYaml,
  "": () => Promise.resolve(),
};

/** Keys of k3s's config.yaml that the pages have. */
const K3S_KEYS = ["disable", "disable-kube-proxy", "disable-network-policy"];

async function withScene(run: (scene: DocScene) => Promise<void>): Promise<void> {
  const root = await Deno.makeTempDir({ prefix: "docs-commands-" });
  try {
    await run({
      root,
      denoJson: await readPage("deno.json"),
      compileScript: await readPage("compile.sh"),
    });
  } finally {
    await Deno.remove(root, { recursive: true });
  }
}

/** bash has to be able to read it all; then each program has a check. */
async function checkShell({ text }: MarkdownBlock, scene: DocScene): Promise<void> {
  await Deno.writeTextFile(`${scene.root}/block.sh`, text);
  const { code, stderr } = await new Deno.Command("bash", {
    args: ["-n", `${scene.root}/block.sh`],
  })
    .output();
  assertEquals(code, 0, new TextDecoder().decode(stderr));
  const commands = parseShell(text);
  assert(commands.length > 0, "a block of shell without a command");
  for (const { words } of commands) await checkDocCommand(words, scene);
}

async function checkYaml({ text, line }: MarkdownBlock): Promise<void> {
  for (const object of parseManifest(text, `line ${line}`)) {
    if (object.kind === undefined && "networkPolicy" in object) {
      await checkChartValues(object as unknown as Readonly<Record<string, unknown>>);
      const { config } = object as unknown as { readonly config: object };
      const type = {
        apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
        kind: "KubeProxyConfiguration",
      };
      const readTextFile = () => Promise.resolve(JSON.stringify({ ...type, ...config }));
      const { problems, warnings } = await readConfigurationFile({ readTextFile }, "config.conf");
      assertEquals([problems, warnings], [[], []]);
    } else if (object.kind === undefined) {
      const unknown = Object.keys(object).filter((key) => !K3S_KEYS.includes(key));
      assertEquals(unknown, [], "keys of k3s's config.yaml");
    } else if (object.kind === "KubeProxyConfiguration") {
      const readTextFile = () => Promise.resolve(text);
      const { problems, warnings } = await readConfigurationFile({ readTextFile }, "config.conf");
      assertEquals([problems, warnings], [[], []]);
    } else {
      const spec = ROUTING_OBJECT_KINDS.find(({ kind }) => kind === object.kind);
      assert(spec, "the docs have no other manifests: only those of deploy/ are tested");
      const { routing } = defaultConfiguration();
      const { pools, peers } = joinRoutingObjects(
        { ...routing, bgp: { ...routing.bgp, enabled: true } },
        { pools: [], peers: [], [spec === BGP_PEER ? "peers" : "pools"]: [object] },
      );
      for (const { problem } of [...pools.values(), ...peers.values()]) {
        assertEquals(problem, undefined);
      }
      assertEquals(unknownFields(spec, object), []);
    }
  }
}

for (const path of COMMAND_PAGES) {
  Deno.test(`the commands of ${path} can be run`, async (t) => {
    const blocks = extractBlocks(await readPage(path));
    assert(blocks.some(({ language }) => language === "sh"), "no command was found");
    for (const block of blocks) {
      const check = BLOCK_CHECKS[block.language];
      assert(check, `${path}:${block.line} is a block of '${block.language}': say how to check it`);
      await t.step(`line ${block.line}`, () => withScene((scene) => check(block, scene)));
    }
  });
}

Deno.test("checkDocCommand() refuses what nobody should type", () =>
  withScene(async (scene) => {
    for (const [command, says] of MISTAKES) {
      const [parsed] = parseShell(command);
      await assertRejects(() => checkDocCommand(parsed!.words, scene), Error, says);
    }
  }));

const MISTAKES = [
  ["frobnicate", "there is no check for 'frobnicate'"],
  ["kube-relay --kubeconfg=x", "--kubeconfg"],
  ["install -m 0755 dist/kube-relay /usr/bin/kube-relay", "/usr/bin/kube-relay is a place"],
  ["kubectl apply -f deploy/kubernetes/none.yaml", "none.yaml"],
  ["sudo rm -rf /etc", "/etc is a place"],
  ["nft flush ruleset", "nft flush ruleset writes"],
] as const;

Deno.test("every KUBE_RELAY_ARGS in the docs and in deploy/ is taken by the real parser", async () => {
  let count = 0;
  for (const path of [...COMMAND_PAGES, "deploy/k3s.conf", "deploy/kube-relay.default"]) {
    for (
      const [, text] of (await readPage(path)).matchAll(
        /KUBE_RELAY_(?:K3S_)?ARGS="?=?"?(--[^"`\n]*)/g,
      )
    ) {
      // systemd puts the host name in the place of %H.
      await checkRelay(text!.replaceAll("%H", "node-1").trim().split(/\s+/));
      count++;
    }
  }
  assert(count >= 6, `only ${count} were found`);
});

Deno.test("the hook of examples/pre-commit-config.yaml is a command that the real parser takes", async () => {
  const hook = await readPage("examples/pre-commit-config.yaml");
  const [, command] = /^ *entry: kube-relay (.+)$/m.exec(hook)!;
  await checkRelay(command!.split(" "));
});

Deno.test("README.md describes the use of each mode of this release, and names no other", async () => {
  const page = await readPage("README.md");
  for (const mode of BACKEND_MODES) {
    const isReported = new RegExp(`^\\| \`${mode}\` +\\| \\S.+ \\|$`, "m").test(page);
    const isThere = BACKENDS[mode] !== undefined;
    assertEquals(isReported, isThere, `the table of modes at the beginning of README.md: ${mode}`);
  }
});
