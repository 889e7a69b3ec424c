// Search in pages that were opened from disk. Browsers start no worker there, so the search runs in a hidden frame, which
// answers as a worker would. (The theme's plugin "offline" would fetch such a script from another host.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      this.loaded = new Promise((resolve, reject) => {
        script.onload = () => resolve(inside);
        script.onerror = () => reject(new Error(`${address} cannot be loaded`));
      });
      script.src = address;
      frame.contentDocument.body.append(script);
    }

    async postMessage(data) {
      (await this.loaded).dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
