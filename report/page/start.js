// The page as it opens.

// The colours follow the system until the button is used.
function prepareTheme() {
  const names = { auto: 'Auto', light: 'Light', dark: 'Dark' };
  const order = ['auto', 'light', 'dark'];
  let theme = 'auto';
  const show = () => replace(byId('theme'), '◐ ' + names[theme]);
  byId('theme').onclick = () => {
    theme = order[(order.indexOf(theme) + 1) % order.length];
    if (theme === 'auto') document.documentElement.removeAttribute('data-theme');
    else document.documentElement.dataset.theme = theme;
    show();
  };
  show();
}

const overview = JSON.parse(byId('overview').textContent);
prepareTheme();
drawOverview(overview);
drawCharts(overview);
prepareFind();
// The blocks stand behind this script and have not been read yet.
document.addEventListener('DOMContentLoaded', () => drawBrowser(overview));
