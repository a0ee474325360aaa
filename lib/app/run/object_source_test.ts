import { assertEquals, assertRejects } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { admitManifests, ServerAddresses } from "./object_source.ts";

Deno.test("ServerAddresses.run() ends while a resolver does not answer", async () => {
  const addresses = new ServerAddresses(
    new FakeClock(),
    "https://api.example.org:6443",
    () => {},
    () => new Promise(() => {}),
  );
  const abort = new AbortController();
  const running = addresses.run(abort.signal);
  abort.abort();
  await running;
});

Deno.test("admitManifests() refuses a start without a manifest on a node of a cluster only", () =>
  withFolder(async (folder) => {
    const [node, empty, full] = [`${folder}/kubelet`, `${folder}/empty`, `${folder}/full`];
    for (const each of [node, empty, full]) await Deno.mkdir(each);
    await Deno.writeTextFile(`${empty}/README.md`, "");
    await Deno.symlink("none", `${empty}/web.yaml`);
    await Deno.writeTextFile(`${full}/web.yaml`, "");
    const admitted = async (paths: readonly string[], nodeFolder: string) => {
      const logger = new MemoryLogger();
      await admitManifests({ logger }, paths, [`${folder}/none`, nodeFolder]);
      return logger.lines.map(({ level, fields }) => `${level} ${fields.manifests}`);
    };
    for (const path of [empty, `${folder}/missing`]) {
      assertEquals(await admitted([path], `${folder}/none`), [`warn ${path}`]);
      const says =
        `there is no manifest in ${path}, and this host is a node of a cluster (${node} `;
      await assertRejects(() => admitted([path], node), Error, says);
    }
    for (const path of [full, `${full}/web.yaml`]) {
      assertEquals(await admitted([empty, path], node), []);
    }
  }));

for (
  const path of ["/var/lib/rancher/k3s", "/var/lib/kubelet", "/var/lib/k0s", "/var/snap/microk8s"]
) {
  Deno.test(`admitManifests() knows a node of a cluster by ${path}`, async () => {
    const { stat } = Deno;
    Deno.stat = (name) =>
      name === path ? stat("/") : Promise.reject(new Deno.errors.NotFound(`${name}`));
    try {
      const admitted = admitManifests({ logger: new MemoryLogger() }, ["/none"]);
      await assertRejects(() => admitted, Error, `(${path} exists)`);
    } finally {
      Deno.stat = stat;
    }
  });
}
