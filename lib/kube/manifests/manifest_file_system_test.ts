import { assertEquals } from "@std/assert";
import { eventually } from "../../../tests/support/eventually.ts";
import { runTool } from "../../../tests/support/drivers/run_tool.ts";
import { ManifestHarness, serviceYaml } from "../../../tests/support/stages/manifest_harness.ts";
import { hastyClock } from "../../../tests/support/fakes/hasty_clock.ts";
import { hostFileSystem } from "./manifests.ts";

/** A way in which a program may replace a text. `folder` is watched. */
interface SaveStyle {
  readonly what: string;
  readonly save: (folder: string, text: string) => Promise<void>;
  /** Prepares the folder; without it the file is just written. */
  readonly prepare?: (folder: string, text: string) => Promise<void>;
}

const file = (folder: string) => `${folder}/web.yaml`;

const SAVE_STYLES: readonly SaveStyle[] = [
  {
    what: "writes it in place",
    save: (folder, text) => Deno.writeTextFile(file(folder), text),
  },
  {
    what: "writes it in pieces",
    save: async (folder, text) => {
      using open = await Deno.open(file(folder), { write: true, truncate: true });
      for (const line of text.split(/(?<=\n)/)) await open.write(new TextEncoder().encode(line));
    },
  },
  {
    what: "renames a new one over it",
    save: async (folder, text) => {
      await Deno.writeTextFile(`${folder}/.web.yaml.new`, text);
      await Deno.rename(`${folder}/.web.yaml.new`, file(folder));
    },
  },
  {
    what: "moves one over it from another folder",
    save: async (folder, text) => {
      const outside = await Deno.makeTempFile();
      await Deno.writeTextFile(outside, text);
      await Deno.rename(outside, file(folder));
    },
  },
  {
    what: "keeps a backup and writes a new one, as vim does",
    save: async (folder, text) => {
      await Deno.writeTextFile(`${folder}/4913`, "");
      await Deno.remove(`${folder}/4913`);
      await Deno.rename(file(folder), `${folder}/web.yaml~`);
      await Deno.writeTextFile(file(folder), text);
      await Deno.remove(`${folder}/web.yaml~`);
    },
  },
  {
    what: "deletes it and makes it again",
    save: async (folder, text) => {
      await Deno.remove(file(folder));
      await Deno.writeTextFile(file(folder), text);
    },
  },
  {
    what: "swaps the symlink of a ConfigMap volume",
    prepare: async (folder, text) => {
      await Deno.mkdir(`${folder}/..2026_01`);
      await Deno.writeTextFile(`${folder}/..2026_01/web.yaml`, text);
      await Deno.symlink("..2026_01", `${folder}/..data`);
      await Deno.symlink("..data/web.yaml", file(folder));
    },
    save: async (folder, text) => {
      await Deno.mkdir(`${folder}/..2026_02`);
      await Deno.writeTextFile(`${folder}/..2026_02/web.yaml`, text);
      await Deno.symlink("..2026_02", `${folder}/..data_tmp`);
      await Deno.rename(`${folder}/..data_tmp`, `${folder}/..data`);
      await Deno.remove(`${folder}/..2026_01`, { recursive: true });
    },
  },
];

async function withFolder(test: (folder: string) => Promise<void>): Promise<void> {
  const root = await Deno.makeTempDir();
  try {
    await Deno.mkdir(`${root}/manifests`);
    await test(`${root}/manifests`);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
}

function start(...paths: string[]): ManifestHarness {
  return new ManifestHarness(hastyClock, undefined, ...paths);
}

async function untilAddress(harness: ManifestHarness, address: string | undefined): Promise<void> {
  await eventually(
    `the cluster IP is ${address}`,
    () => harness.informers.services.synced && harness.informers.clusterIp("web") === address,
  );
}

for (const { what, save, prepare = SAVE_STYLES[0]!.save } of SAVE_STYLES) {
  for (const given of ["folder", "file"] as const) {
    Deno.test(`a manifest ${given} is read again when a program ${what}`, async () => {
      await withFolder(async (folder) => {
        await prepare(folder, serviceYaml("web", "10.0.0.1"));
        await using harness = start(given === "folder" ? folder : file(folder));
        await untilAddress(harness, "10.0.0.1");
        await save(folder, serviceYaml("web", "10.0.0.2"));
        await untilAddress(harness, "10.0.0.2");
        await Deno.writeTextFile(`${folder}/next`, serviceYaml("web", "10.0.0.3"));
        await Deno.rename(`${folder}/next`, file(folder));
        await untilAddress(harness, "10.0.0.3");
        const deleted = harness.informers.events.filter((event) => event.startsWith("-"));
        assertEquals(deleted, []);
      });
    });
  }
}

Deno.test("a manifest file is forgotten when it is deleted, and read when it appears", async () => {
  await withFolder(async (folder) => {
    await using harness = start(`${folder}/`);
    await untilAddress(harness, undefined);
    await Deno.writeTextFile(file(folder), serviceYaml("web", "10.0.0.1"));
    await untilAddress(harness, "10.0.0.1");
    await Deno.remove(file(folder));
    await untilAddress(harness, undefined);
    assertEquals(harness.source.status(), []);
  });
});

Deno.test("a manifest folder is read when it appears, and again after it was deleted", async () => {
  await withFolder(async (root) => {
    const folder = `${root}/later`;
    await using harness = start(folder);
    await untilAddress(harness, undefined);
    for (const address of ["10.0.0.1", "10.0.0.2"]) {
      // Made elsewhere and moved: the file is in it before any watch can start.
      await Deno.mkdir(`${root}/new`);
      await Deno.writeTextFile(file(`${root}/new`), serviceYaml("web", address));
      await Deno.rename(`${root}/new`, folder);
      await untilAddress(harness, address);
      await Deno.remove(folder, { recursive: true });
      await untilAddress(harness, undefined);
    }
  });
});

Deno.test("a manifest folder is read that takes the place of an empty one", async () => {
  await withFolder(async (root) => {
    const folder = `${root}/empty`;
    await Deno.mkdir(folder);
    await using harness = start(folder);
    await untilAddress(harness, undefined);
    await Deno.remove(folder);
    await eventually("the folder is missed", () => harness.problems.length === 1);
    await Deno.mkdir(folder);
    await Deno.writeTextFile(file(folder), serviceYaml("web", "10.0.0.1"));
    await untilAddress(harness, "10.0.0.1");
  });
});

Deno.test("a manifest folder is read with a problem if a folder has the name of a file", async () => {
  await withFolder(async (folder) => {
    await Deno.mkdir(`${folder}/odd.yaml`);
    await Deno.writeTextFile(file(folder), serviceYaml("web", "10.0.0.1"));
    await using harness = start(folder);
    await untilAddress(harness, "10.0.0.1");
    assertEquals(harness.problems, [
      `${folder}/odd.yaml:1:1: Cannot read manifest: it is not a regular file`,
    ]);
  });
});

Deno.test("a manifest folder is read with a problem if the name of a file is not UTF-8", async () => {
  await withFolder(async (folder) => {
    // Deno cannot write such a name either.
    await runTool("bash", ["-c", "cd \"$1\" && touch a.yaml $'b\\xff.yaml'", "-", folder]);
    await using harness = start(folder);
    await untilAddress(harness, undefined);
    const reason = "its name is not valid UTF-8; rename the file; it is read once there is one";
    assertEquals(harness.problems, [
      `${folder}/b\uFFFD.yaml:1:1: Cannot read manifest: ${reason}`,
    ]);
  });
});

Deno.test("hostFileSystem has no names if there is no folder", async () => {
  await withFolder(async (folder) => {
    await Deno.writeTextFile(file(folder), "");
    assertEquals(await hostFileSystem.list(`${folder}/none`), undefined);
    assertEquals(await hostFileSystem.list(file(folder)), undefined);
  });
});
